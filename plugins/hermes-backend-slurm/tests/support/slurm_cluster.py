"""A real Slurm on loopback: its own munged, one slurmctld, and several slurmd, all on this machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

_START: Final = 150.0
"""Seconds in which a whole cluster must have started on a busy machine."""
_ANSWER: Final = 60.0
"""Seconds in which a Slurm command must end. Together with the start this is less than the timeout of a test, which
would kill the test without a message."""
_CONFIG = """\
ClusterName=hermestest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
InactiveLimit=0
MinJobAge=10
SlurmctldTimeout=10
SlurmdTimeout=10
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
PartitionName=short Nodes=ALL MaxTime=1 State=UP OverSubscribe=FORCE:8
PartitionName=queue Nodes=ALL State=UP OverSubscribe=EXCLUSIVE
PartitionName=closed Nodes=ALL State=DOWN
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=512 State=UNKNOWN"


def missing_slurm() -> str | None:
    """Return why a private Slurm cannot be started here, or None."""
    programs = ("slurmctld", "slurmd", "srun", "salloc", "squeue", "scontrol", "scancel", "munged")
    absent = [name for name in programs if _program(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: slurmctld slurmd slurm-client munge)"
    return None if os.geteuid() == 0 else "slurmd and munged are started by root"


class SlurmCluster:
    """One cluster, whose nodes `n1`, `n2`, … are all this machine. `stop` ends all of its processes."""

    def __init__(self, nodes: int = 2) -> None:
        # Not below pytest's folder, which only root can enter: munged runs as another user.
        self.folder = Path(tempfile.mkdtemp(prefix="hermes-slurm-"))
        self.folder.chmod(0o755)
        self.nodes = [f"n{number + 1}" for number in range(nodes)]
        self.conf = self.folder / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = _free_ports(nodes + 1)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which Slurm's commands find this cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def start(self) -> SlurmCluster:
        deadline = time.monotonic() + _START
        try:
            self._configure()
            self._start_munge(deadline)
            self.start_controller(deadline)
            for node in self.nodes:
                self.start_node(node)
            self.await_state("idle", deadline=deadline)
        except BaseException:
            self.stop()
            raise
        return self

    def _configure(self) -> None:
        host = socket.gethostname().split(".")[0]
        for name in ("state", "munge", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir()
        lines = [
            _NODE.format(name=node, host=host, port=port)
            for node, port in zip(self.nodes, self._ports[1:], strict=True)
        ]
        text = _CONFIG.format(host=host, port=self._ports[0], folder=self.folder, nodes="\n".join(lines))
        self.conf.write_text(text)

    def _start_munge(self, deadline: float) -> None:
        folder = self.folder / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        account = pwd.getpwnam("munge")
        for path in (folder, key):
            os.chown(path, account.pw_uid, account.pw_gid)
        paths = {"key-file": key, "socket": folder / "socket", "pid-file": folder / "pid", "log-file": folder / "log"}
        paths["seed-file"] = folder / "seed"
        arguments = [f"--{name}={path}" for name, path in paths.items()]
        self._spawn("munged", "--foreground", *arguments, uid=account.pw_uid, gid=account.pw_gid)
        _await((folder / "socket").exists, "munged does not start", self.log, deadline)

    def start_controller(self, deadline: float | None = None) -> None:
        self._spawn("slurmctld", "-D", "-f", str(self.conf))
        complaint = "slurmctld does not answer"
        _await(lambda: self.call("scontrol", "ping").returncode == 0, complaint, self.log, deadline)

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def start_node(self, node: str) -> None:
        self._spawn("slurmd", "-D", "-N", node, "-f", str(self.conf), name=node)

    def kill_node(self, node: str) -> None:
        """Kill slurmd and everything it has started at once, as a loss of power would."""
        daemon = self._daemons.pop(node)
        steps = list(self._steps(node))
        daemon.kill()
        daemon.wait()
        for step in steps:
            for pid in (step, *descendants(step)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _steps(self, node: str) -> Iterator[int]:
        """Yield a node's slurmstepd processes, which have left slurmd, by their sockets in its spool folder."""
        spool = f"{self.folder}/spool-{node}/{node}_"
        for line in Path("/proc/net/unix").read_text().splitlines():
            path = line.split()[-1]
            if path.startswith(spool):
                yield from _holders(line.split()[6])

    def await_state(self, state: str, nodes: int | None = None, *, deadline: float | None = None) -> None:
        wanted = len(self.nodes) if nodes is None else nodes

        def is_reachable() -> bool:
            return self.call("sinfo", "-h", "-p", "debug", "-N", "-o", "%T").stdout.split().count(state) >= wanted

        _await(is_reachable, f"{wanted} nodes do not become {state}", self.log, deadline)

    def call(self, *command: str, seconds: float = _ANSWER) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands on this cluster."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=seconds)

    @contextlib.contextmanager
    def allocation(self, nodes: int, *arguments: str) -> Iterator[str]:
        """Provide an allocation as a user at a terminal would request it; yields the job id."""
        ready = ["sh", "-c", "echo $SLURM_JOB_ID; exec cat"]
        command = ["salloc", "--quiet", f"--nodes={nodes}", "--no-kill", "--kill-command", *arguments, *ready]
        salloc = subprocess.Popen(
            command, env=environment_of(self), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        granted: list[object] = []
        try:
            assert salloc.stdout is not None
            granted = select.select([salloc.stdout], [], [], _ANSWER)[0]
            assert granted, f"Slurm grants no allocation of {nodes} nodes: {self.log()}"
            yield salloc.stdout.readline().strip()
        finally:
            if not granted:
                salloc.terminate()  # while it waits in the queue, it does not read its input
            salloc.communicate(timeout=_ANSWER)

    def jobs(self) -> list[str]:
        """Return the jobs that have not ended."""
        return self.call("squeue", "-h", "-t", "PD,R,CF,S", "-o", "%i").stdout.split()

    def steps(self) -> list[str]:
        """Return the running steps, except for the jobs' own."""
        found = self.call("squeue", "-h", "-s", "-o", "%i").stdout.split()
        return [step for step in found if not step.endswith((".extern", ".batch", ".interactive"))]

    def agents(self) -> list[int]:
        """Return the processes that the nodes' steps have started themselves."""
        steps = {pid for node in self.nodes for pid in self._steps(node)}
        return [pid for step in steps for pid in children_of(step)]

    def log(self) -> str:
        texts = [path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(texts + [path.read_text(errors="replace")[-500:] for path in self.folder.glob("*.err")])

    def stop(self) -> None:
        """End everything and delete it."""
        if "slurmctld" in self._daemons:
            for options in (["--signal=KILL"], []):
                with contextlib.suppress(subprocess.TimeoutExpired):  # what is left is ended below
                    self.call("scancel", "--me", *options, seconds=10)
        steps = [pid for node in self.nodes for pid in self._steps(node)]
        for name in list(self._daemons):
            self._end(name)
        for pid in steps:
            for each in (*descendants(pid), pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _spawn(
        self, program: str, *arguments: str, name: str = "", uid: int | None = None, gid: int | None = None
    ) -> None:
        found = _program(program)
        assert found is not None
        with (self.folder / f"{name or program}.err").open("ab") as said:
            self._daemons[name or program] = subprocess.Popen(
                [found, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                user=uid,
                group=gid,
                extra_groups=None if uid is None else [],
                env={"PATH": _PATH, **self.environment},
                start_new_session=True,
            )

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait()


_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"


def _program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def _await(
    condition: Callable[[], bool], complaint: str, log: Callable[[], str], deadline: float | None = None
) -> None:
    deadline = time.monotonic() + _ANSWER if deadline is None else deadline
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{complaint}: {log()}")
        time.sleep(0.02)


def _free_ports(number: int) -> list[int]:
    """Return free ports, drawn from below the range from which the kernel assigns ephemeral ports."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < number:
            port, each = random.SystemRandom().randrange(15_000, 32_000), stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
    return found


def _holders(inode: str) -> Iterator[int]:
    wanted = f"socket:[{inode}]"
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if any(str(link.readlink()) == wanted for link in (folder / "fd").iterdir()):
                    yield int(folder.name)


def children_of(parent: int) -> list[int]:
    """Return the running processes that a process has started."""
    found = []
    for folder in [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found


def descendants(root: int) -> list[int]:
    """Return all running descendants of a process."""
    found = [root]
    for pid in found:
        found += children_of(pid)
    return found[1:]


def environment_of(cluster: SlurmCluster, **more: str) -> Mapping[str, str]:
    """Return the environment of a caller of this cluster."""
    return {**os.environ, **cluster.environment, **more}
