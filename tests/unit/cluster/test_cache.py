"""An entry of the cache is there whole or not at all."""

import threading
from pathlib import Path

import pytest

from localcluster.cache import Cache, key_of, lock


def test_an_entry_is_built_once(tmp_path: Path) -> None:
    cache = Cache(folder=tmp_path)
    builds: list[Path] = []
    assert not cache.has("thing", "1")
    for _ in range(2):
        assert cache.entry("thing", "1", builds.append) == tmp_path / "thing@1"
    assert len(builds) == 1
    assert cache.has("thing", "1")
    assert not cache.has("thing", "2")


def test_a_build_that_fails_leaves_no_entry_and_the_next_one_starts_from_nothing(tmp_path: Path) -> None:
    cache = Cache(folder=tmp_path)

    def fail_halfway(place: Path) -> None:
        (place / "half").touch()
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        cache.entry("thing", "1", fail_halfway)
    entry = cache.entry("thing", "1", lambda place: (place / "whole").touch())
    assert [path.name for path in entry.iterdir()] == ["whole"]


def test_what_a_killed_build_left_goes_with_the_next_build_of_that_name_and_no_other(tmp_path: Path) -> None:
    for left in ("thing@1.building", "thing-too@1.building"):
        (tmp_path / left / "half").mkdir(parents=True)
    Cache(folder=tmp_path).entry("thing", "2", lambda _: None)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["thing-too@1.building", "thing@2"]


def test_two_who_want_the_same_entry_at_once_build_it_once(tmp_path: Path) -> None:
    cache = Cache(folder=tmp_path)
    building, may_end = threading.Event(), threading.Event()
    builds: list[Path] = []

    def build_slowly(place: Path) -> None:
        builds.append(place)
        building.set()
        assert may_end.wait(10)

    first = threading.Thread(target=lambda: cache.entry("thing", "1", build_slowly))
    first.start()
    assert building.wait(10)
    second = threading.Thread(target=lambda: cache.entry("thing", "1", build_slowly))
    second.start()
    may_end.set()
    first.join(10)
    second.join(10)
    assert len(builds) == 1


def test_a_lock_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stop"), lock(tmp_path / "lock", what="nothing"):
        raise RuntimeError("stop")
    with lock(tmp_path / "lock", what="nothing"):
        pass


def test_a_key_changes_with_contents_and_texts_but_not_with_places(tmp_path: Path) -> None:
    here, there = tmp_path / "here" / "file", tmp_path / "there" / "file"
    for file in (here, there):
        file.parent.mkdir()
        file.write_text("same")
    assert key_of(files=[here]) == key_of(files=[there])
    assert key_of(files=[here], texts=["a"]) != key_of(files=[here], texts=["b"])
    assert key_of(texts=["ab", "c"]) != key_of(texts=["a", "bc"])
    there.write_text("other")
    assert key_of(files=[here]) != key_of(files=[there])
