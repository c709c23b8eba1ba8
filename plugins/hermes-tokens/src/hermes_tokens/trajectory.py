"""The token ids of one rollout: a tree of context and sampled nodes, from which the training samples are built.

A node never changes, except that a sampled one may be split in two. Each sampled token is in exactly one node, and has
loss in exactly one of the samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, Literal

from hermes_core.contracts.tokens import IGNORED, TrainingSample, WeightSpan
from hermes_tokens.generation import Generated, TokenIds

BreakReason = Literal["template", "junction", "history_edited", "engine"]
"""Why a branch starts: the template rewrites history, a stop token had to be replaced, the caller changed history, the
server left a turn unfinished."""
ROOT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNode:
    """A piece of ids after those of `parent`. `turn` counts sampled turns from 0; None: context, without logprobs."""

    parent: int
    role: str
    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...] = ()
    weight_versions: tuple[WeightSpan, ...] = ()
    turn: int | None = None
    constraints: tuple[str, ...] = ()


class Trajectory:
    """A trajectory that grows at its head; `prompt` is everything from the root to the head, ready to send."""

    def __init__(self) -> None:
        self.nodes: list[TokenNode] = []
        self.head = ROOT
        self.prompt = TokenIds()
        self.turns = 0
        self.breaks: Counter[BreakReason] = Counter()
        self._reasons: dict[int, str] = {}
        self._broken: tuple[BreakReason, str] | None = None

    def add_context(self, role: str, ids: Sequence[int]) -> None:
        """Append ids that were not sampled."""
        if ids:
            self._add(TokenNode(parent=self.head, role=role, ids=tuple(ids)))

    def add_sampled(self, generated: Generated, *, continues: bool = False) -> None:
        """Append sampled ids; `continues`: they continue a turn that the server had aborted."""
        if not continues:
            self.turns += 1
        if not generated.ids:
            return
        self._add(
            TokenNode(
                parent=self.head,
                role="assistant",
                ids=generated.ids,
                logprobs=generated.logprobs,
                weight_versions=generated.weight_versions,
                turn=self.turns - 1,
                constraints=generated.constraints,
            )
        )
        if self._broken is not None:
            self.breaks[self._broken[0]] += 1
            self._broken = None

    def rewind(self, node: int, reason: BreakReason, detail: str = "") -> None:
        """Go back to a node (or `ROOT`).

        The next addition starts a new branch for that reason, unless only context was left behind. `detail` is added to
        the reason in the branch's sample.
        """
        self.head = node
        self.prompt = TokenIds(token for index in self._path(node) for token in self.nodes[index].ids)
        if not self.would_branch(node):
            self._broken = None
        elif self._broken is None or reason == "history_edited":  # a repeated request keeps its reason
            self._broken = (reason, detail)

    def would_branch(self, node: int) -> bool:
        """Return whether sampled ids follow a node, so that an addition to it starts a branch."""
        above: set[int] = set()
        for sampled in self.sampled_nodes():
            index = sampled.parent
            while index != ROOT and index not in above:
                above.add(index)
                index = self.nodes[index].parent
        return node in above or (node == ROOT and self.turns > 0)

    def drop_last(self, reason: BreakReason = "junction") -> None:
        """Go back to before the last sampled token, which stays in its own branch."""
        size = len(self.nodes[self.head].ids) - 1
        first = self._divide(self.head, size)
        if size:
            self.head = len(self.nodes) - 1
        self.rewind(first, reason)

    def rebase(self, spans: Iterable[tuple[str, Sequence[int]]], reason: BreakReason, detail: str = "") -> None:
        """Continue with a newly rendered prompt, given as roles and ids.

        This starts a branch unless the prompt only extends the present one.
        """
        spans = list(spans)
        node, size = self.longest_prefix([token for _, ids in spans for token in ids])
        if node != self.head:
            self.rewind(node, reason, detail)
        for role, ids in spans:
            self.add_context(role, ids[size:])
            size = max(0, size - len(ids))

    def longest_prefix(self, ids: Sequence[int]) -> tuple[int, int]:
        """Return the deepest node, in any branch, whose path is a prefix of the prompt, and the length of that path."""
        children: dict[int, list[int]] = {}
        for index, node in enumerate(self.nodes):
            children.setdefault(node.parent, []).append(index)
        best, places = (ROOT, 0), [(ROOT, 0)]
        while places:
            place = places.pop()
            best = max(best, place, key=itemgetter(1))
            for index in children.get(place[0], ()):
                own, start = self.nodes[index].ids, place[1]
                if tuple(ids[start : start + len(own)]) == own:
                    places.append((index, start + len(own)))
        return best

    def samples(self) -> list[TrainingSample]:
        """Return one sample for each branch with its own tokens to train."""
        trained: set[int] = set()
        samples: list[TrainingSample] = []
        for path in sorted(map(self._path, self._ends())):  # in the order in which branches started
            samples.append(self._sample(path, trained, len(samples)))
            trained.update(path)
        return samples

    def spans_before_turn(self, node: int) -> list[tuple[str, tuple[int, ...]]]:
        """Return the roles and ids of the path before the turn that ends with a node."""
        turn = self.nodes[node].turn
        path = (self.nodes[index] for index in self._path(node))
        return [(part.role, part.ids) for part in path if part.turn is None or part.turn != turn]

    def sampled_nodes(self) -> Iterator[TokenNode]:
        """Yield the sampled nodes in the order they came."""
        return (node for node in self.nodes if node.turn is not None)

    def _add(self, node: TokenNode) -> None:
        self.nodes.append(node)
        self.head = len(self.nodes) - 1
        self.prompt.extend(node.ids)
        if self._broken is not None:
            self._reasons[self.head] = ": ".join(filter(None, self._broken))

    def _path(self, node: int) -> list[int]:
        path = []
        while node != ROOT:
            path.append(node)
            node = self.nodes[node].parent
        return path[::-1]

    def _divide(self, index: int, size: int) -> int:
        """Split a sampled node after `size` ids; return the index of the first part."""
        node = self.nodes[index]
        if size == 0:
            return node.parent
        self.nodes[index] = _part(node, 0, size, node.parent)
        rest = _part(node, size, len(node.ids), index)
        for place, other in enumerate(self.nodes):
            if other.parent == index:
                self.nodes[place] = replace(other, parent=len(self.nodes))
        self.nodes.append(rest)
        return index

    def _ends(self) -> list[int]:
        """Return the last sampled node of every branch, without branches inside another branch."""
        parents = {node.parent for node in self.nodes}
        ends: list[int] = []
        for leaf in range(len(self.nodes)):
            if leaf in parents:
                continue
            end = leaf
            while end != ROOT and self.nodes[end].turn is None:
                end = self.nodes[end].parent
            if end != ROOT:
                ends.append(end)
        inner = {index for end in ends for index in self._path(end)[:-1]}
        return [end for end in dict.fromkeys(ends) if end not in inner]

    def _sample(self, path: Sequence[int], trained: set[int], branch: int) -> TrainingSample:
        tokens: list[int] = []
        masks: list[int] = []
        logprobs: list[float | None] = []
        spans: list[WeightSpan] = []
        constrained = False
        for index in path:
            node = self.nodes[index]
            spans += [_shift(span, len(tokens)) for span in node.weight_versions]
            tokens += node.ids
            has_loss = node.turn is not None and index not in trained
            constrained = constrained or (has_loss and bool(node.constraints))
            masks += node.ids if has_loss else [IGNORED] * len(node.ids)
            logprobs += node.logprobs or [None] * len(node.ids)
        reason = next((self._reasons[index] for index in reversed(path) if index in self._reasons), "")
        return TrainingSample(
            tokens=tokens,
            masks=masks,
            logprobs=logprobs,
            weight_versions=_join_spans(spans),
            branch=branch,
            reason=reason,
            constrained=constrained,
        )


def _part(node: TokenNode, start: int, end: int, parent: int) -> TokenNode:
    spans = [
        WeightSpan(version=s.version, start=max(s.start, start) - start, end=min(s.end, end) - start)
        for s in node.weight_versions
        if s.start < end and start < s.end
    ]
    return replace(
        node,
        parent=parent,
        ids=node.ids[start:end],
        logprobs=node.logprobs[start:end],
        weight_versions=tuple(spans),
    )


def _shift(span: WeightSpan, by: int) -> WeightSpan:
    return WeightSpan(version=span.version, start=span.start + by, end=span.end + by)


def _join_spans(spans: Sequence[WeightSpan]) -> list[WeightSpan]:
    """Join spans that touch and name the same weights."""
    joined: list[WeightSpan] = []
    for span in spans:
        if joined and joined[-1].end == span.start and joined[-1].version == span.version:
            joined[-1] = WeightSpan(version=span.version, start=joined[-1].start, end=span.end)
        else:
            joined.append(span)
    return joined
