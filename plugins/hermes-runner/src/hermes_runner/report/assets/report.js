"use strict";
(() => {
  // Everything shown was written by models, tasks and servers: text enters the page as text nodes only.
  const byId = (id) => document.getElementById(id);
  // A lone surrogate is not text: addresses cannot contain it, and browsers fail on it in several ways.
  const whole = (text) => text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
  const parse = (text) => JSON.parse(text, (_, value) => (typeof value === "string" ? whole(value) : value));
  const data = (id) => parse(byId(id).textContent);
  const summary = data("summary");
  const pageFacts = data("page-facts");
  const rows = Array.from(document.querySelectorAll("script.row"), (node, index) => {
    const row = parse(node.textContent);
    row.at = index;
    return row;
  });
  const details = document.querySelectorAll("script.rollout");
  const PAGE = 50;
  const TASK_PAGE = 12;
  const HEAD = 20000;
  const BINS = 20;

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }
  function svg(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  const fill = (id, ...children) => byId(id).replaceChildren(...children.flat().filter(Boolean));
  const known = (value) => value !== null && value !== undefined;
  const number = (value, digits) => known(value)
    ? value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) : "–";
  const percent = (value) => known(value) ? `${(100 * value).toFixed(value >= 0.0005 && value < 0.00995 ? 1 : 0)}\u202f%` : "–";
  const plural = (count, noun) => `${number(count, 0)} ${noun}${count === 1 ? "" : "s"}`;
  const words = (text) => String(text).replaceAll("_", " ");
  function seconds(value) {
    if (!known(value)) return "–";
    if (value < 1) return `${Math.round(1000 * value)} ms`;
    if (value < 90) return `${value.toFixed(1)} s`;
    const whole = Math.round(value);
    const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return hours ? `${hours} h ${minutes} min` : `${minutes}:${String(rest).padStart(2, "0")} min`;
  }
  // Control codes and direction overrides become visible instead of acting.
  const visible = (text) => whole(String(text))
    .replace(/\r\n/g, "\n")
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => `[U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);

  // The address after # holds the whole state of the view, so that a link shows what its sender saw.
  const read = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  let state = read();
  function link(changes) {
    const next = new URLSearchParams();
    for (const [key, value] of Object.entries({ ...state, ...changes })) if (known(value) && value !== "") next.set(key, value);
    return `#${next}`;
  }
  function go(changes) {
    history.replaceState(null, "", link(changes));
    show();
  }

  const found = { q: null, rollouts: null };
  const pattern = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const json = (text) => JSON.stringify(text).slice(1, -1).replaceAll("<", "\\u003c");
  function holds(value, query, quoted) {
    if (typeof value === "string") {
      const lower = value.toLowerCase();
      return lower.includes(query) || lower.includes(quoted);
    }
    return value !== null && typeof value === "object" && Object.values(value).some((item) => holds(item, query, quoted));
  }
  function search(q) {
    if (found.q === q) return found.rollouts;
    const query = q.toLowerCase();
    const quoted = JSON.stringify(query).slice(1, -1);
    // The raw text is searched first; only rollouts that can match are decoded. Arguments are JSON inside JSON, hence twice.
    const raw = new RegExp([json(q), json(json(q)), json(quoted)].map(pattern).join("|"), "i");
    const hit = (row) => [row.id, row.task, row.stop, row.status, row.failure, row.disposition].some((text) => text.toLowerCase().includes(query))
      || (raw.test(details[row.at].textContent) && holds(parse(details[row.at].textContent), query, quoted));
    found.q = q;
    found.rollouts = new Set(rows.filter(hit).map((row) => row.at));
    return found.rollouts;
  }
  function filtered() {
    const q = (state.q || "").trim();
    const hits = q ? search(q) : null;
    const [min, max] = [parseFloat(state.min), parseFloat(state.max)];
    return rows.filter((row) => (!state.task || row.task === state.task)
      && (!state.stop || row.stop === state.stop)
      && (!state.status || row.status === state.status)
      && (Number.isNaN(min) || (known(row.reward) && row.reward >= min))
      && (Number.isNaN(max) || (known(row.reward) && row.reward <= max))
      && (!hits || hits.has(row.at)));
  }
  function sorted(items, column, direction) {
    const sign = direction === "desc" ? -1 : 1;
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    return items.map((item, at) => ({ item, at, value: column.value(item) })).sort((a, b) => {
      // Rows without a value come last in both directions.
      if (known(a.value) !== known(b.value)) return known(a.value) ? -1 : 1;
      return (known(a.value) && sign * compare(a.value, b.value)) || a.at - b.at;
    }).map(({ item }) => item);
  }

  function meter(share, kind) {
    const bar = svg("svg", { class: `meter ${kind || ""}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" });
    const width = Math.max(0, Math.min(1, share || 0)) * 100;
    bar.append(svg("rect", { class: "track", width: 100, height: 6 }), svg("rect", { class: "value", width, height: 6 }));
    return bar;
  }
  function rewardCell(reward, status) {
    if (!known(reward)) return el("span", { class: "none" }, status && status !== "ok" ? status : "none");
    const kind = reward >= summary.pass.threshold ? "good" : reward <= 0 ? "bad" : "partly";
    return el("span", { class: "reward" }, meter(reward, kind), el("span", { class: `value ${kind}` }, number(reward, 3)));
  }
  const badge = (text, kind) => el("span", { class: `badge ${kind || ""}` }, visible(words(text)));
  const calm = new Set(["final_answer", "ok", "score"]);
  const alarming = new Set(["error", "model_error", "tool_backend_error", "task_error", "framework_error", "cancelled", "drop"]);
  const mood = (name) => (calm.has(name) ? "" : alarming.has(name) ? "bad" : "partly");

  // One table for tasks and rollouts. `prefix` keeps their sort order and page apart in the address.
  function table({ mount, caption, columns, items, prefix, size, empty }) {
    const [sortKey, dirKey, pageKey] = ["sort", "dir", "page"].map((key) => prefix + key);
    const column = columns.find((candidate) => candidate.key === state[sortKey]);
    const ordered = column ? sorted(items, column, state[dirKey]) : items;
    const pages = Math.max(1, Math.ceil(ordered.length / size));
    const page = Math.min(pages, Math.max(1, parseInt(state[pageKey], 10) || 1));
    const head = columns.map((c) => {
      const active = column === c;
      const down = active ? state[dirKey] !== "desc" : c.downFirst;
      const order = active ? (state[dirKey] === "desc" ? "descending" : "ascending") : "none";
      const change = { [sortKey]: c.key, [dirKey]: down ? "desc" : "", [pageKey]: "" };
      const sort = () => { go(change); byId(`${prefix}sort-${c.key}`).focus(); };
      return el("th", { scope: "col", class: c.class, "aria-sort": order },
        el("button", { type: "button", id: `${prefix}sort-${c.key}`, onclick: sort }, c.label,
          el("span", { class: "arrow", "aria-hidden": "true" }, active ? (order === "ascending" ? " ▲" : " ▼") : "")));
    });
    const body = ordered.slice((page - 1) * size, page * size).map((item) => el("tr", {},
      columns.map((c) => el(c.names ? "th" : "td", { class: c.class, scope: c.names && "row" }, c.cell(item)))));
    if (!body.length) body.push(el("tr", {}, el("td", { colspan: columns.length, class: "empty" }, empty)));
    const turnTo = (to) => el("button", { type: "button", disabled: to < 1 || to > pages, onclick: () => go({ [pageKey]: to > 1 ? to : "" }) },
      to < page ? "← Previous" : "Next →");
    const pager = pages > 1 && el("nav", { class: "pager", "aria-label": `Pages of ${caption}` }, turnTo(page - 1),
      el("span", {}, `Page ${page} of ${pages}`), turnTo(page + 1));
    mount.replaceChildren(el("div", { class: "scroll" }, el("table", {}, el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, head)), el("tbody", {}, body))), ...(pager ? [pager] : []));
    return ordered;
  }

  const rolloutColumns = [
    { key: "line", label: "#", class: "num wide-only", value: (r) => r.line, cell: (r) => String(r.line) },
    { key: "id", label: "Rollout", class: "id", names: true, value: (r) => r.id, cell: (r) => [el("a", { href: link({ rollout: r.id }) }, visible(r.id)), el("span", { class: "narrow-only" }, visible(r.task))] },
    { key: "task", label: "Task", class: "name", value: (r) => r.task, cell: (r) => visible(r.task) },
    { key: "reward", label: "Reward", class: "num", downFirst: true, value: (r) => r.reward, cell: (r) => rewardCell(r.reward, known(r.dropped_reward) ? "dropped" : r.status) },
    { key: "stop", label: "Stop reason", class: "stop", value: (r) => r.stop, cell: (r) => [badge(r.stop, mood(r.stop)), r.failure && el("span", { class: "why" }, visible(r.failure))] },
    { key: "turns", label: "Turns", class: "num", downFirst: true, value: (r) => r.turns, cell: (r) => number(r.turns, 0) },
    { key: "errors", label: "Tool errors", class: "num mid-only", downFirst: true, value: (r) => r.errors, cell: (r) => (r.errors ? el("span", { class: "bad" }, String(r.errors)) : "0") },
    { key: "tokens", label: "Tokens", class: "num wide-only", downFirst: true, value: (r) => r.tokens, cell: (r) => number(r.tokens, 0) },
    { key: "seconds", label: "Time", class: "num wide-only", downFirst: true, value: (r) => r.seconds, cell: (r) => seconds(r.seconds) },
  ];
  const largestK = Object.keys(summary.pass["pass@k"]).map(Number).filter((k) => k > 1).sort((a, b) => b - a)[0];
  const taskColumns = [
    { key: "task", label: "Task", class: "name", names: true, value: (t) => t.task_id, cell: (t) => el("a", { href: link({ task: t.task_id, page: "" }), onclick: (event) => toRollouts(event, t) }, visible(t.task_id)) },
    { key: "n", label: "Scored", class: "num mid-only", value: (t) => t.n, cell: (t) => (t.left_out ? el("span", { class: "partly" }, `${t.n} of ${t.rollouts}`) : String(t.n)) },
    { key: "mean", label: "Mean reward", class: "num", downFirst: true, value: (t) => t.mean_reward, cell: (t) => rewardCell(t.mean_reward) },
    { key: "std", label: "Std", class: "num wide-only", downFirst: true, value: (t) => t.std_reward, cell: (t) => number(t.std_reward, 3) },
    { key: "pass1", label: "pass@1", class: "num", downFirst: true, value: (t) => t["pass@1"], cell: (t) => percent(t["pass@1"]) },
    largestK && { key: "passk", label: `pass@${largestK}`, class: "num mid-only", downFirst: true, value: (t) => t["pass@k"][largestK], cell: (t) => percent(t["pass@k"][largestK]) },
    { key: "turns", label: "Mean turns", class: "num wide-only", downFirst: true, value: (t) => t.mean_turns, cell: (t) => number(t.mean_turns, 1) },
    { key: "errors", label: "Tool errors", class: "num wide-only", downFirst: true, value: (t) => t.tool_errors, cell: (t) => number(t.tool_errors, 0) },
  ].filter(Boolean);
  function toRollouts(event, task) {
    event.preventDefault();
    go({ task: task.task_id, page: "" });
    byId("rollouts-title").scrollIntoView({ behavior: "smooth" });
  }

  function tile(label, value, ...notes) {
    return el("div", { class: "tile" }, el("h2", {}, label), el("p", { class: "figure" }, value), notes.filter(Boolean).map((note) => el("p", { class: "muted small" }, note)));
  }
  function tiles() {
    const { reward, pass, rollouts, turns, tokens, speed } = summary;
    const errors = summary.tool_errors;
    const atK = Object.entries(pass["pass@k"]).filter(([k]) => k !== "1").map(([k, value]) => `pass@${k} ${percent(value.mean_over_tasks)}${value.tasks < summary.tasks.length ? ` (of ${plural(value.tasks, "task")})` : ""}`);
    const worst = Object.entries(errors.by_tool).slice(0, 2).map(([tool, count]) => `${visible(tool)} ${count}`);
    fill("tiles",
      tile("Mean reward", number(reward.mean_over_tasks, 3), `mean over ${plural(summary.tasks.length, "task")}`, `${number(reward.mean_over_rollouts, 3)} over rollouts, std ${number(reward.std_over_rollouts, 3)}`),
      tile("pass@1", percent(pass["pass@1_over_tasks"]), ...atK, `pass: reward ≥ ${Number(pass.threshold.toFixed(6))}`),
      tile("Rollouts", number(rollouts.total, 0), `${number(rollouts.scored, 0)} with a reward that counts`, rollouts.no_reward > 0 && `${number(rollouts.no_reward, 0)} without, excluded from means`,
        rollouts.dropped > 0 && `${number(rollouts.dropped, 0)} dropped, excluded from means: ${Object.entries(rollouts.drop_causes).map(([cause, count]) => `${visible(words(cause))} ${count}`).join(", ")}`, rollouts.masked > 0 && `${number(rollouts.masked, 0)} masked: in the means, but not trained on`),
      tile("Turns", number(turns.total, 0), `${number(turns.mean, 1)} per rollout`, known(speed.turns_per_second) && `${number(speed.turns_per_second, 1)} per second`),
      tile("Tool errors", number(errors.total, 0), `in ${plural(errors.rollouts, "rollout")}`, ...worst),
      tokens.prompt + tokens.completion > 0 && tile("Tokens", compact(tokens.prompt + tokens.completion), `${compact(tokens.prompt)} prompt`, `${compact(tokens.completion)} completion`),
      summary.exactness && exactTile(summary.exactness),
      engine.name && engineTile(),
      known(speed.wall_seconds) && tile("Wall time", seconds(speed.wall_seconds), `${number(speed.rollouts_per_second, 2)} rollouts per second`));
  }
  // An engine's provenance comes from a plugin: values that do not have the form of the contract are ignored.
  const engine = summary.run.engine !== null && typeof summary.run.engine === "object" ? summary.run.engine : {};
  const workers = (Array.isArray(engine.workers) ? engine.workers : []).filter((worker) => worker !== null && typeof worker === "object");
  const nodes = [...new Set(workers.map((worker) => String(worker.node)))].map((node) => [node, workers.filter((worker) => String(worker.node) === node)]);
  function engineTile() {
    const byEngine = Object.entries(summary.rollouts.engine || {});
    const others = byEngine.some(([name]) => name !== engine.name);
    const where = workers.length ? `${plural(workers.length, "worker")} on ${plural(nodes.length, "node")}` : engine.name === "local" && "in the command's own process";
    return tile("Engine", visible(engine.name), where, engine.lost_workers > 0 && el("span", { class: "bad" }, `${plural(engine.lost_workers, "worker")} lost`),
      others && `rollouts run by ${byEngine.map(([name, count]) => `${visible(name)} ${number(count, 0)}`).join(", ")}`);
  }
  function nodeTable() {
    byId("nodes").hidden = !nodes.length;
    const rowOf = ([node, ones]) => {
      const lost = ones.filter((worker) => worker.lost).map((worker) => `${worker.worker ?? "a worker"}: ${worker.lost}`);
      return el("tr", {}, el("th", { scope: "row", class: "name" }, visible(node)), el("td", { class: "name" }, visible(ones.map((worker) => worker.worker ?? "?").join(", "))),
        el("td", { class: "num" }, number(ones.reduce((sum, worker) => sum + (Number(worker.rollouts) || 0), 0), 0)), el("td", { class: lost.length ? "name bad" : "muted" }, lost.length ? visible(lost.join("; ")) : "none"));
    };
    const head = ["Node", "Workers", "Rollouts run", "Lost"].map((label) => el("th", { scope: "col", class: label.startsWith("Rollouts") ? "num" : "name" }, label));
    fill("nodes-list", el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, nodes.slice(0, PAGE).map(rowOf)))),
      nodes.length > PAGE && el("p", { class: "muted small" }, `${plural(nodes.length - PAGE, "more node")} in summary.json`));
  }
  function exactTile(exact) {
    const shares = ["sampled_trained_share", "turns_with_loss_share", "prefix_exact_share", "template_parity", "logprob_coverage"].filter((key) => known(exact[key]));
    const least = Math.min(...shares.map((key) => exact[key]));
    const below = shares.filter((key) => exact[key] < 1).map((key) => `${words(key)} ${share(exact[key])}`);
    const lost = Object.entries(exact.not_trained).map(([cause, count]) => `${visible(words(cause))} ${compact(count)}`);
    return tile("Exactness", share(exact.foreign_control_tokens ? 0 : least), ...(below.length ? below : ["every sampled token is trained once"]),
      `${number(exact.samples_per_rollout, 2)} samples per rollout`, exact.foreign_control_tokens > 0 && `${exact.foreign_control_tokens} control tokens from untrusted text`,
      exact.constrained_tokens > 0 && `${number(exact.constrained_tokens, 0)} tokens drawn under a mask`,
      lost.length > 0 && `sampled, not trained: ${lost.join(", ")}`);
  }
  const share = (value) => (value === 1 ? "1.000" : Math.min(value, 0.9999).toFixed(4));
  const compact = (value) => value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });

  function histogram(current) {
    const scored = rows.filter((row) => known(row.reward));
    const low = scored.reduce((least, row) => Math.min(least, row.reward), 0);
    const high = scored.reduce((most, row) => Math.max(most, row.reward), 1);
    const bins = Array.from({ length: BINS }, (_, at) => ({ from: low + (at * (high - low)) / BINS, to: low + ((at + 1) * (high - low)) / BINS, rewards: [], chosen: 0 }));
    const binOf = (row) => bins[Math.min(BINS - 1, Math.floor(((row.reward - low) / (high - low)) * BINS + 1e-9))];
    for (const row of scored) binOf(row).rewards.push(row.reward);
    for (const row of current) if (known(row.reward)) binOf(row).chosen += 1;
    const most = Math.max(1, ...bins.map((bin) => bin.rewards.length));
    fill("histogram", bins.map((bin, at) => {
      const count = bin.rewards.length;
      const label = `${plural(count, "rollout")} with a reward from ${number(bin.from, 2)} to ${number(bin.to, 2)}`;
      const [total, chosen] = [(100 * count) / most, (100 * bin.chosen) / most];
      const least = bin.rewards.reduce((a, b) => Math.min(a, b), Infinity);
      const top = bin.rewards.reduce((a, b) => Math.max(a, b), -Infinity);
      return el("button", { type: "button", class: "column", disabled: !count, "aria-label": label, title: label, onclick: () => go({ min: least, max: top, page: "" }) },
        el("span", { class: "n" }, count ? String(count) : ""),
        svg("svg", { viewBox: "0 0 10 100", preserveAspectRatio: "none", "aria-hidden": "true" },
          svg("rect", { class: "all", x: 0, y: 100 - total, width: 10, height: total }),
          svg("rect", { class: "chosen", x: 0, y: 100 - chosen, width: 10, height: chosen })),
        el("span", { class: "tick" }, at % 5 === 0 ? number(bin.from, 2) : at === BINS - 1 ? number(bin.to, 2) : ""));
    }));
    const missing = rows.length - scored.length;
    byId("histogram-note").textContent = `Choose a bar to see its rollouts.${missing ? ` ${plural(missing, "rollout")} without a reward that counts ${missing === 1 ? "is" : "are"} not drawn.` : ""}`;
  }
  function stops() {
    const counts = Object.entries(summary.rollouts.stop_reason);
    const most = Math.max(1, ...counts.map(([, count]) => count));
    fill("stops", el("ul", { class: "bars" }, counts.map(([name, count]) => el("li", {},
      el("button", { type: "button", class: "line", "aria-pressed": String(state.stop === name), onclick: () => go({ stop: state.stop === name ? "" : name, page: "" }) },
        el("span", { class: "label" }, visible(words(name))), el("span", { class: "n" }, number(count, 0)), meter(count / most, mood(name)))))));
  }
  const PHASES = ["model", "tool", "sandbox_start", "verifier", "framework"];
  function timeBar(parts) {
    const sum = parts.reduce((all, [, value]) => all + (value || 0), 0);
    if (!sum) return el("p", { class: "muted" }, "No times recorded.");
    const bar = svg("svg", { class: "timebar", viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    let x = 0;
    for (const [name, value] of parts) {
      const width = (1000 * (value || 0)) / sum;
      bar.append(svg("rect", { class: `phase-${PHASES.indexOf(name)}`, x, width, height: 10 }));
      x += width;
    }
    return el("div", { class: "times" }, bar, el("ul", { class: "legend" }, parts.map(([name, value]) => el("li", {},
      el("i", { class: `dot phase-${PHASES.indexOf(name)}`, "aria-hidden": "true" }), `${words(name)} `,
      el("b", {}, percent((value || 0) / sum)), el("span", { class: "muted" }, ` ${seconds(value || 0)}`)))));
  }
  function failures() {
    byId("failures").hidden = !summary.failures.length;
    fill("failures-list", el("ul", { class: "failures" }, summary.failures.map((failure) => el("li", {},
      el("p", {}, el("b", {}, `${number(failure.count, 0)} × ${visible(failure.type)}`), " ", badge(`blame: ${failure.blame}`, "bad"), " ",
        badge(failure.phase === "reward" ? "no reward" : "rollout failed"), " ", el("a", { href: link({ rollout: failure.rollout_id }) }, "example")),
      el("p", { class: "message" }, visible(failure.message)))),
    summary.more_failures.kinds > 0 && el("li", { class: "muted" }, `${plural(summary.more_failures.kinds, "more kind")} (${plural(summary.more_failures.count, "failure")}) in rollouts.jsonl`)));
  }
  function flatten(value, path, out) {
    if (value !== null && typeof value === "object" && Object.keys(value).length) {
      for (const [key, item] of Object.entries(value)) flatten(item, path ? `${path}.${key}` : key, out);
    } else if (known(value) && value !== "" && typeof value !== "object") out.push([path, String(value)]);
    return out;
  }
  function facts() {
    const all = [...flatten(summary.run, "", []), ...flatten(summary.provenance, "provenance", [])];
    const wanted = ["tasks", "model", "model_name", "terminal_backend", "isolation", "network", "group_size", "seed", "started_at", "created", "hermes_core"];
    const versions = all.filter(([path]) => /(^|\.)versions\./.test(path));
    const chips = [...wanted.map((key) => all.find(([path]) => path === key || path.endsWith(`.${key}`))).filter(Boolean), ...versions.slice(0, 4)];
    fill("chips", chips.map(([path, value]) => el("li", {}, el("span", { class: "muted" }, `${visible(words(path.split(".").pop()))} `), visible(value).slice(0, 120))));
    fill("facts-list", all.map(([path, value]) => [el("dt", {}, visible(path)), el("dd", {}, visible(value))]).flat());
    byId("facts").hidden = !all.length;
    const notices = [];
    if (pageFacts.limit) notices.push(`This run is large. Only the first ${number(pageFacts.limit, 0)} characters of each text are kept here; each cut is marked, and rollouts.jsonl has the whole texts.`);
    if (pageFacts.unreadable) notices.push(`${plural(pageFacts.unreadable, "line")} of rollouts.jsonl could not be read and ${pageFacts.unreadable === 1 ? "is" : "are"} not shown: line ${pageFacts.unreadable_lines.join(", ")}${pageFacts.unreadable > pageFacts.unreadable_lines.length ? ", …" : ""}.`);
    const missing = (summary.run.planned || 0) - rows.length - pageFacts.unreadable;
    if (missing > 0) notices.push(`${number(missing, 0)} of ${plural(summary.run.planned, "planned rollout")} ${missing === 1 ? "was" : "were"} not run.`);
    const problems = Array.isArray(summary.run.problems) ? summary.run.problems : [];
    const listed = problems.slice(0, 50).map((problem) => el("p", { class: "message" }, visible(`${problem.task_id || problem.source}: ${problem.message}`)));
    if (engine.unconfirmed > 0) notices.push(`${plural(engine.unconfirmed, "cancelled rollout")} may have left a sandbox where the engine ran it. To remove it there: hermes-core sandboxes gc`);
    for (const line of summary.run.skipped_toolsets || []) notices.push(visible(`Not offered to the model: ${line}`));
    for (const event of summary.run.event_problems || []) notices.push(visible(`Plugin ${event.plugin}, ${event.hook} (${event.kind}), ${number(event.count, 0)} ×: ${event.message}`));
    for (const [message, count] of Object.entries(summary.run.sink_errors || {})) notices.push(visible(`Sink, ${number(count, 0)} ×: ${message}`));
    fill("notices", notices.map((text) => el("p", { class: "notice" }, text)), problems.length > 0 && el("details", { class: "notice" },
      el("summary", {}, `${plural(problems.length, "task")} could not be run`), listed, problems.length > listed.length && el("p", {}, `${problems.length - listed.length} more in summary.json`)));
  }

  // Text of a conversation, with the matches of the search marked.
  function marked(text) {
    const q = (state.q || "").trim();
    const shown = visible(text);
    if (!q) return [shown];
    return shown.split(new RegExp(`(${pattern(q)})`, "i".concat("g"))).map((part, at) => (at % 2 ? el("mark", {}, part) : part));
  }
  function writing(tag, text, line, className) {
    const node = el(tag, { class: className, tabindex: tag === "pre" ? "0" : null });
    const all = () => node.replaceChildren(...marked(text.t), ...leftOut());
    const leftOut = () => (text.cut ? [el("span", { class: "cut" }, `${plural(text.cut, "character")} left out, see rollouts.jsonl line ${line}`)] : []);
    if (text.t.length <= HEAD) all();
    else node.append(...marked(text.t.slice(0, HEAD)), el("button", { type: "button", class: "more", onclick: all }, `Show all ${number(text.t.length, 0)} characters`));
    return node;
  }
  // JSON objects are shown field by field with real line breaks; anything else as it is.
  function structured(text, line) {
    let value = null;
    if (!text.cut && text.t.length <= HEAD) try { value = JSON.parse(text.t); } catch { value = null; }
    if (value === null || typeof value !== "object" || Array.isArray(value)) return writing("pre", text, line, "block");
    const fields = Object.entries(value);
    if (!fields.length) return el("p", { class: "muted small" }, "no fields");
    return el("dl", { class: "fields" }, fields.map(([key, item]) => {
      const plain = typeof item === "string" ? item : JSON.stringify(item, null, 2);
      const small = plain === "" ? "empty" : item === null || typeof item !== "object" && typeof item !== "string" ? plain : null;
      return [el("dt", {}, visible(key)), el("dd", {}, small === null ? writing("pre", { t: plain }, line, "block") : el("span", { class: "scalar" }, small))];
    }).flat());
  }
  const isJson = (text) => { try { JSON.parse(text); return true; } catch { return false; } };
  function folded(className, label, content, open) {
    return el("details", { class: className, open }, el("summary", {}, label), content);
  }
  function result(message, line, bad) {
    const label = `Result · ${plural(message.text.t.length + (message.text.cut || 0), "character")}`;
    return folded(`result${bad ? " bad" : ""}`, label, structured(message.text, line), true);
  }
  function callCard(call, answer, detail, line) {
    const error = call.error === undefined ? null : detail.tool_errors[call.error];
    if (error) error.shown = true;
    const broken = !call.args.cut && call.args.t !== "" && !isJson(call.args.t);
    return el("div", { class: `call${error ? " bad" : ""}` },
      el("p", { class: "call-head" }, el("code", {}, visible(call.name)), error && badge("tool error", "bad"), broken && badge("arguments are not JSON", "bad")),
      structured(call.args, line),
      error && el("p", { class: "message bad" }, marked(error.error.t)),
      answer ? result(answer, line, error) : el("p", { class: "muted small" }, "No result in the conversation."));
  }
  const ROLES = { system: "System", user: "User", assistant: "Assistant", tool: "Tool result" };
  function messageCard(message, turn, answers, detail, line) {
    const role = ROLES[message.role] || visible(message.role);
    const text = message.text.t === "" ? null : writing("div", message.text, line, "text");
    const long = message.role === "system" && message.text.t.length > 400;
    return el("article", { class: `message-card ${ROLES[message.role] ? message.role : ""}` },
      el("h3", {}, role, message.name && ` ${visible(message.name)}`, turn && el("span", { class: "muted" }, ` turn ${turn}`)),
      message.reasoning && message.reasoning.t && folded("reasoning", `Reasoning · ${plural(message.reasoning.t.length, "character")}`, writing("div", message.reasoning, line, "text"), false),
      long ? folded("long", `${plural(message.text.t.length, "character")}`, text, false) : message.role === "tool" ? structured(message.text, line) : text,
      (message.calls || []).map((call) => callCard(call, answers.get(call), detail, line)),
      !text && !message.calls && el("p", { class: "muted" }, "(empty message)"),
      message.extra && message.extra.t && folded("extra", "Other fields", writing("pre", message.extra, line, "block"), false));
  }
  function cards(detail, line) {
    // A result belongs to the nearest call before it with its id: servers repeat ids from turn to turn.
    const open = new Map();
    const answers = new Map();
    const orphans = new Set();
    for (const message of detail.messages) {
      for (const call of message.calls || []) if (call.id) open.set(call.id, call);
      if (message.role !== "tool") continue;
      const call = open.get(message.call_id);
      if (call) answers.set(call, message);
      else orphans.add(message);
      open.delete(message.call_id);
    }
    let turn = 0;
    return detail.messages.filter((message) => message.role !== "tool" || orphans.has(message)).map((message) => {
      if (message.role === "assistant") turn += 1;
      return messageCard(message, message.role === "assistant" && turn, answers, detail, line);
    });
  }
  function judgement(row, detail) {
    const parts = detail.parts.length > 0 && el("ul", { class: "bars parts" }, detail.parts.map(([name, value]) => el("li", { class: "line" },
      el("span", { class: "label" }, visible(name)), el("span", { class: "n" }, known(value) ? number(value, 3) : "not a number"), meter(value, value >= 1 ? "good" : value <= 0 ? "bad" : "partly"))));
    const broken = detail.failures.map((failure) => el("div", { class: "failure" },
      el("p", {}, el("b", {}, `${failure.phase === "reward" ? "No reward" : "The rollout failed"}: ${visible(failure.type.t)}`), " ", badge(`blame: ${failure.blame.t}`, "bad")),
      writing("pre", failure.message, row.line, "block")));
    return el("section", { class: "panel", "aria-label": "Reward" }, el("h2", {}, "Reward"), el("p", { class: "figure" }, rewardCell(row.reward, known(row.dropped_reward) ? "dropped" : row.status)),
      known(row.dropped_reward) && el("p", { class: "muted" }, `The verifier gave ${number(row.dropped_reward, 3)}, but the rollout was dropped and is excluded from means.`), parts,
      detail.reward_detail.t && writing("pre", detail.reward_detail, row.line, "block"), broken);
  }
  function conversation(row, list) {
    const detail = parse(details[row.at].textContent);
    const at = list.findIndex((other) => other.at === row.at);
    const step = (to, label, key) => (list[to] && at >= 0
      ? el("a", { class: "step", href: link({ rollout: list[to].id }), "data-key": key, title: `key ${key}` }, label) : el("span", { class: "step off" }, label));
    const body = cards(detail, row.line);
    const unplaced = detail.tool_errors.filter((error) => !error.shown);
    const tally = [...detail.facts, ["turns", row.turns], ...detail.counters.map(([name, value]) => [words(name), value]), ...detail.exactness.map(([name, value]) => [words(name), value]), ["line in rollouts.jsonl", row.line]];
    const nav = el("nav", { class: "bar", "aria-label": "Rollouts" }, el("a", { class: "step", href: link({ rollout: "" }), "data-key": "Escape", title: "key Escape" }, "← All rollouts"),
      el("span", { class: "muted grow" }, at >= 0 ? `${number(at + 1, 0)} of ${number(list.length, 0)} in this list` : "not in the filtered list"), step(at - 1, "↑ Previous", "k"), step(at + 1, "↓ Next", "j"));
    const head = el("header", { class: "rollout-head" }, el("h1", { tabindex: "-1", id: "rollout-title" }, visible(row.task)), el("p", { class: "muted id" }, `${visible(row.id)} · index ${visible(Object.fromEntries(detail.facts).index)} in its group`),
      el("p", {}, badge(row.stop, mood(row.stop)), " ", badge(`reward ${row.status}`, mood(row.status)), " ", row.disposition && row.disposition !== "score" && badge(row.disposition, mood(row.disposition)), " ",
        row.errors > 0 && badge(plural(row.errors, "tool error"), "bad")));
    const timings = detail.timings.filter(([name]) => name !== "total");
    fill("conversation", nav, head, el("div", { class: "panels" }, judgement(row, detail),
      el("section", { class: "panel", "aria-label": "Time" }, el("h2", {}, `Time · ${seconds(row.seconds)}`), timeBar(timings),
        el("details", {}, el("summary", {}, "Counters and facts"), el("dl", { class: "facts" }, tally.map(([name, value]) => [el("dt", {}, visible(name)), el("dd", {}, visible(value))]).flat())),
        el("details", {}, el("summary", {}, "Provenance"), writing("pre", detail.provenance, row.line, "block")))),
    unplaced.length > 0 && el("section", { class: "panel" }, el("h2", {}, "Further tool errors"), unplaced.map((error) => el("div", { class: "call bad" },
      el("p", { class: "call-head" }, el("code", {}, visible(error.tool)), ` turn ${error.turn}`), el("p", { class: "message bad" }, marked(error.error.t)), writing("pre", error.arguments, row.line, "block")))),
    el("div", { class: "foldall" }, el("h2", {}, "Conversation"), el("button", { type: "button", onclick: () => foldAll(true) }, "Open all"), el("button", { type: "button", onclick: () => foldAll(false) }, "Close all")),
    body.length ? body : el("p", { class: "muted" }, "No messages."), detail.final && detail.final.t && el("article", { class: "message-card assistant" }, el("h3", {}, "Final response"), writing("div", detail.final, row.line, "text")));
  }
  function foldAll(open) {
    for (const node of byId("conversation").querySelectorAll(".message-card details")) node.open = open;
  }

  function fillSelect(id, values) {
    byId(id).append(...[...values].sort((a, b) => a.localeCompare(b, "en", { numeric: true })).map((value) => el("option", { value }, visible(value))));
  }
  let drawn = null;
  function show() {
    state = read();
    const list = filtered();
    for (const input of document.querySelectorAll("[data-key]")) if (input !== document.activeElement && "value" in input) input.value = state[input.dataset.key] || "";
    byId("count").textContent = list.length === rows.length ? number(rows.length, 0) : `${number(list.length, 0)} of ${number(rows.length, 0)}`;
    histogram(list);
    stops();
    failures();
    table({ mount: byId("tasks"), caption: "Tasks", columns: taskColumns, items: summary.tasks, prefix: "t", size: TASK_PAGE, empty: "This run has no tasks." });
    const ordered = table({ mount: byId("rollouts"), caption: "Rollouts", columns: rolloutColumns, items: list, prefix: "", size: PAGE, empty: rows.length ? "No rollout fits these filters." : "This run has no rollouts yet." });
    const row = state.rollout ? rows.find((candidate) => candidate.id === state.rollout) : null;
    byId("overview").hidden = Boolean(state.rollout);
    byId("conversation").hidden = !state.rollout;
    byId("chips").hidden = Boolean(state.rollout);
    if (row) conversation(row, ordered);
    else if (state.rollout) fill("conversation", el("p", { class: "notice" }, `There is no rollout ${visible(state.rollout)} in this report. `, el("a", { href: link({ rollout: "" }) }, "All rollouts")));
    if ((drawn || "") !== (state.rollout || "") && drawn !== null) arrive(row, drawn);
    drawn = state.rollout || "";
  }
  function arrive(row, from) {
    if (!state.rollout) {
      const back = [...document.querySelectorAll("#rollouts th a")].find((a) => new URLSearchParams(a.getAttribute("href").slice(1)).get("rollout") === from);
      if (back) { back.scrollIntoView({ block: "center" }); back.focus({ preventScroll: true }); }
      return;
    }
    scrollTo(0, 0);
    if (row) byId("rollout-title").focus({ preventScroll: true });
  }

  let waiting = 0;
  byId("filters").addEventListener("input", (event) => {
    clearTimeout(waiting);
    const change = { [event.target.dataset.key]: event.target.value, page: "" };
    waiting = setTimeout(() => go(change), event.target.type === "search" ? 200 : 0);
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => {
    byId("reset").focus();
    go({ q: "", task: "", stop: "", status: "", min: "", max: "", page: "" });
  });
  byId("rollouts").addEventListener("click", (event) => {
    const target = event.target.closest("tbody tr");
    const chosen = String(getSelection());
    if (target && !event.target.closest("a") && !chosen && target.querySelector("a")) location.hash = target.querySelector("a").getAttribute("href");
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || !state.rollout) return;
    const target = byId("conversation").querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
    if (target) location.hash = target.getAttribute("href");
  });
  addEventListener("hashchange", show);

  fillSelect("f-task", new Set(rows.map((row) => row.task)));
  fillSelect("f-stop", new Set(rows.map((row) => row.stop)));
  fillSelect("f-status", new Set(rows.map((row) => row.status)));
  tiles();
  nodeTable();
  facts();
  fill("time", timeBar(Object.entries(summary.time.seconds)));
  show();
})();
