"""What can be said of our engine without starting it."""

import ipaddress
from pathlib import Path

from localcluster import engine
from localcluster.engine import Link, OwnEngine
from localcluster.settings import Folders


def test_each_data_folder_has_a_link_with_two_addresses_of_one_small_test_network() -> None:
    links = [Link.of(Path(folder)) for folder in ("/home/ada/engine", "/home/grace/engine")]
    assert links[0] != links[1]
    for link in links:
        network = ipaddress.ip_network(f"{link.machine}/30", strict=False)
        assert [str(host) for host in network.hosts()] == [link.machine, link.engine]
        assert network.subnet_of(ipaddress.ip_network("198.18.0.0/15"))  # type: ignore[arg-type]
        assert len(link.name) <= 15  # the kernel's limit


def test_an_engine_that_never_ran_is_not_running_and_holds_nothing(tmp_path: Path) -> None:
    own = OwnEngine(folders=Folders(root=tmp_path))
    assert not own.is_running()
    assert not own.has_containers()


def test_the_missing_capability_is_seen_in_the_bounding_set(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t000001fffeffffff\n")
    assert not engine._may_raise_limits(status)
    status.write_text("Name:\tx\nCapBnd:\t000001ffffffffff\n")
    assert engine._may_raise_limits(status)
