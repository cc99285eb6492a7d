# SPDX-License-Identifier: Apache-2.0
"""Through which network devices a rank is reached."""

from __future__ import annotations

from comm_programs import passes
from programs import Train


def test_a_rank_is_reached_through_the_devices_that_are_named(train: Train) -> None:
    passes(
        train,
        """
        from paceline.comm import _addresses
        devices = _addresses._devices
        assert ("lo", "127.0.0.1", True) in devices(), devices()
        found = [("lo", "127.0.0.1", True), ("eth0", "192.0.2.1", False), ("docker0", "172.17.0.1", False),
                 ("eth1", "198.51.100.1", False), ("eth10", "203.0.113.1", False)]
        _addresses._devices = lambda: found
        for names, wanted in (
            ("eth", ["192.0.2.1", "198.51.100.1", "203.0.113.1"]),
            ("=eth1", ["198.51.100.1"]),
            ("=eth1,eth0,eth7", ["198.51.100.1", "192.0.2.1"]),
            ("eth1,eth,lo", ["198.51.100.1", "203.0.113.1", "192.0.2.1", "127.0.0.1"]),
            ("^docker", ["192.0.2.1", "198.51.100.1", "203.0.113.1"]),
            ("^=eth1,docker0", ["192.0.2.1", "203.0.113.1"]),
            ("wlan", []),
            ("", []),
            ("=", []),
            ("^", []),
        ):
            assert _addresses.addresses_of(names) == wanted, (names, _addresses.addresses_of(names))
        def reached(**names):
            for name in ("PACELINE_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "PACELINE_POD_IP"):
                os.environ.pop(name, None)
                if name.split("_")[0].lower() in names:
                    os.environ[name] = names[name.split("_")[0].lower()]
            os.environ["PACELINE_POD_IP"] = "192.0.2.9"
            return _addresses.own_address()
        assert reached() == reached(nccl="wlan", gloo="wlan0") == "192.0.2.9"
        assert reached(gloo="eth0", nccl="=eth0,eth1") == reached(gloo="eth0,eth1", nccl="=eth0") == "192.0.2.1,198.51.100.1"
        assert reached(gloo="eth1", nccl="=eth0") == "198.51.100.1"
        assert reached(paceline="=eth10", gloo="eth1", nccl="eth") == "203.0.113.1"
        try:
            reached(paceline="wlan")
        except ValueError as error:
            assert "PACELINE_SOCKET_IFNAME: 'wlan'" in str(error) and "docker0" in str(error), error
        else:
            raise AssertionError("not refused")
        # An exclusion may leave more devices than a peer info has room for.
        _addresses._devices = lambda: [(f"net{i}", f"192.0.2.{i}", False) for i in range(40)]
        assert reached(nccl="^lo").count(",") == 15
        def refuse():
            raise OSError("no sockets")
        _addresses._devices = refuse
        assert reached(gloo="eth0") == "192.0.2.9" and _addresses.why_no_address() == ""
        os.environ["PACELINE_SOCKET_IFNAME"] = "eth"
        assert "cannot be listed here: no sockets" in _addresses.why_no_address()
        from paceline.comm import _tuning
        names = {_tuning._file(shape).name for shape in ("4," * 300 + "4", "4," * 300 + "4-rdma", "4," * 300 + "4/2", "4,4", "4,4-rdma")}
        assert len(names) == 5 and max(map(len, names)) < 200, names
        # A communicator over two addresses of this host.
        _addresses._devices = lambda: [("a", f"127.0.0.{2 + rank}", False), ("b", f"127.0.1.{2 + rank}", False)]
        reached(paceline="a,b")
        with paceline.comm.Communicator(host=f"host-{rank}") as comm:
            assert f"# flows go over 2 addresses of each rank, here 127.0.0.{2 + rank} 127.0.1.{2 + rank}" in comm.plan(), comm.plan()
            assert comm.shape() == "1,1/2" and float(comm.all_reduce(torch.ones(70000)).sum()) == 140000
        """,
        ranks=2,
    )
