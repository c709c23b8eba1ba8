"""What tells machines apart, and stays the same when one of them is started again."""

from __future__ import annotations

import dataclasses

import pytest

from hermes_sandbox.leases.machine_identity import MachineIdentity, machine_id

INSTALLED = "3d1219c7c4c5404aaa1f6d2a48adfda4"
BOARD = "ec2fb1e0-1111-2222-3333-444455556666"
BURNT_IN = "00:1b:21:aa:bb:cc"


@pytest.fixture
def machine(tmp_path):
    """Return a function that lays out what a machine says of itself."""
    made = iter(range(100))

    def lay_out(*, installed=INSTALLED, board=None, **addresses):
        root = tmp_path / str(next(made))
        files = {"etc/machine-id": installed, "sys/class/dmi/id/product_uuid": board}
        for name, (address, kind) in addresses.items():
            folder = f"sys/class/net/{name}"
            files |= {f"{folder}/address": address, f"{folder}/addr_assign_type": kind, f"{folder}/device/it": ""}
        for name, text in files.items():
            if text is not None:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(f"{text}\n")
        return root

    return lay_out


def test_a_machine_has_the_same_id_after_it_was_started_again(machine):
    again = [machine_id(machine(board=BOARD, eth0=(BURNT_IN, "0"))) for _ in range(2)]
    assert again[0] == again[1] != ""
    assert INSTALLED not in again[0]


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"installed": None, "board": BOARD},
        {"installed": "", "board": BOARD},
        {"installed": "uninitialized", "board": BOARD},
        {"installed": "0" * 32, "board": BOARD},
        {"board": "00000000-0000-0000-0000-000000000000"},
        {"board": "03000200-0400-0500-0006-000700080009"},
        {"board": "Not Settable"},
        # Made up by hypervisors, the same in a whole fleet; random at each boot; set by somebody; no Ethernet.
        {"eth0": ("52:54:00:12:34:56", "0")},
        {"eth0": ("02:fc:00:00:00:01", "0")},
        {"eth0": (BURNT_IN, "1")},
        {"eth0": (BURNT_IN, "3")},
        {"ib0": ("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:35:41", "0")},
    ],
)
def test_what_containers_and_machines_of_one_image_share_is_no_id(machine, facts):
    assert machine_id(machine(**facts)) == ""


def test_machines_of_one_image_differ_by_their_hardware(machine):
    ids = {
        machine_id(machine(eth0=(BURNT_IN, "0"))),
        machine_id(machine(eth0=("00:1b:21:aa:bb:cd", "0"))),
        machine_id(machine(board=BOARD)),
        machine_id(machine(board=BOARD.replace("6", "7"))),
    }
    assert len(ids) == 4


def test_an_interface_that_can_be_unplugged_or_is_virtual_proves_nothing(machine, tmp_path):
    root = machine(eth0=(BURNT_IN, "0"), usb0=("00:1b:21:00:00:01", "0"), veth0=("00:1b:21:00:00:02", "0"))
    (tmp_path / "usb").mkdir()
    (root / "sys/class/net/usb0/device/subsystem").symlink_to(tmp_path / "usb")
    (root / "sys/class/net/veth0/device/it").unlink()
    (root / "sys/class/net/veth0/device").rmdir()
    assert machine_id(root) == machine_id(machine(eth0=(BURNT_IN, "0")))


def test_an_interface_of_a_bond_keeps_its_own_address(machine):
    bond = "00:1b:21:00:00:09"
    root = machine(eth0=(bond, "3"))
    (root / "sys/class/net/eth0/bonding_slave").mkdir()
    (root / "sys/class/net/eth0/bonding_slave/perm_hwaddr").write_text(f"{BURNT_IN}\n")
    assert machine_id(root) == machine_id(machine(eth0=(BURNT_IN, "0")))


def test_a_user_who_may_not_read_the_board_s_number_knows_the_machine_by_its_addresses(machine):
    of_root = machine_id(machine(board=BOARD, eth0=(BURNT_IN, "0")))
    of_user = machine_id(machine(eth0=(BURNT_IN, "0")))
    here = dataclasses.replace(MachineIdentity.now(), node="n1", machine_id=of_user)
    assert of_root != of_user
    assert here.is_on("n1", of_root)
    assert not here.is_on("n2", of_root)
    assert not here.is_on("n1", "")


def test_an_id_fits_into_what_engines_take_as_a_mark(machine):
    made = machine_id(machine(board=BOARD, eth0=(BURNT_IN, "0")))
    assert len(made) <= 63
    assert ":" not in made
