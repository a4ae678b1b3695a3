"""Joining a job: who is in, what a job takes, how it is cut into shards, and the pace of groups."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from domain.transfers import joining, names
from domain.transfers.joining import JobTargetRegistry, JoinBatch, ShardOfTargets, TargetsWithSameSpec, TransferJobInput
from domain.transfers.models import (
    FileByBizAppAndPath,
    Target,
    TransferSpec,
    build_full_path,
    normalize_container_id,
    normalize_folder,
    validate_agent_id,
    validate_file_name,
    validate_path_without_dots,
)
from workflows.transfers.job import TransferJob

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def order(**limits: int) -> TransferJobInput:
    """A job with these limits."""
    file = FileByBizAppAndPath(biz_id=1, app_id=1, path="/f")
    return TransferJobInput(job_id="j", file=file, window_closes_at=NOW, deadline_at=NOW, **limits)


def make_spec(folder: str = "/data", signature: str = "a", project_id: str = "p") -> TransferSpec:
    """What is brought where."""
    return TransferSpec(project_id=project_id, signature=signature, user="root", folder=folder)


def batch(*targets: int, spec: TransferSpec | None = None) -> JoinBatch:
    """These targets of one spec."""
    group = TargetsWithSameSpec(
        spec=spec or make_spec(), file_name="f", targets=[(key, f"a{key}", "") for key in targets]
    )
    return JoinBatch(groups=[group])


def join_group(registry: JobTargetRegistry, some: JoinBatch) -> bool:
    """Whether all of a group are in."""
    return not registry.register_groups_within_limits(some, NOW).refused


groups = st.lists(st.tuples(st.sampled_from(["/data", "/etc"]), st.lists(st.integers(1, 40), max_size=12)), max_size=12)


@given(groups, st.integers(1, 7))
def test_shards_hold_every_target_once(joins: list[tuple[str, list[int]]], size: int) -> None:
    """However often it asked; and never two specs, nor more targets than a GSE task is given."""
    registry = JobTargetRegistry(order(shard_targets=size))
    expected: set[tuple[str, Target]] = set()
    for folder, keys in joins:
        own = [key + (100 if folder == "/etc" else 0) for key in keys]
        assert join_group(registry, batch(*own, spec=make_spec(folder)))
        expected |= {(folder, (key, f"a{key}", "")) for key in own}

    shards = registry.build_shards()
    found = [(shard.spec.folder, target) for shard in shards for target in shard.targets]

    assert sorted(found) == sorted(expected)
    assert [shard.number for shard in shards] == list(range(1, len(shards) + 1))
    assert all(1 <= len(shard.targets) <= size for shard in shards)
    assert registry.targets == len(expected)


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 12))
def test_batches_keep_order_and_size(sizes: list[int], most: int) -> None:
    """Nothing is lost between them; only a shard that is larger by itself exceeds the limit."""
    shards = [
        ShardOfTargets(number=n, spec=make_spec(), file_name="", targets=[(i, "", "") for i in range(size)])
        for n, size in enumerate(sizes)
    ]
    batches = list(joining.group_shards_by_targets(shards, most, lambda shard: len(shard.targets)))

    assert [shard for batch in batches for shard in batch] == shards
    assert all(len(batch) == 1 or sum(len(shard.targets) for shard in batch) <= most for batch in batches)


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({"targets_max": 3}, batch(3, 4)),
        ({"batches_max": 1}, batch(3)),
    ],
    ids=["targets", "groups"],
)
def test_a_full_job_sends_lots_on(limits: dict[str, int], refused: JoinBatch) -> None:
    """A group is in as a whole or not at all."""
    registry = JobTargetRegistry(order(**limits))
    assert join_group(registry, batch(1, 2))

    reply = registry.register_groups_within_limits(refused, NOW)

    assert (reply.is_open, reply.refused, registry.targets) == (True, [0], 2)


def test_requests_beyond_what_history_takes_are_refused_before_they_are_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those that repeat targets, which add none; Temporal terminates a job whose history is too large."""
    monkeypatch.setattr(joining, "JOIN_BYTES_MAX", 2 * batch(1, 2).count_bytes())
    job = TransferJob(order(targets_max=3))
    for _ in range(2):
        job._refuse_batch_that_history_cannot_take(batch(1, 2))
        job._registry.register_groups_within_limits(batch(1, 2), NOW)
    with pytest.raises(ApplicationError) as refused:
        job._refuse_batch_that_history_cannot_take(batch(1, 2))

    assert (refused.value.type, job._registry.targets) == (names.JOB_FULL, 2)


def test_a_full_window_of_the_longest_ids_fits_into_a_history() -> None:
    """Each target is there as it joins and as it is saved, beside at most 10 MB of other events."""
    targets = [(2**60 - 1, "a" * 64, "c" * 128)] * 1_000
    group = TargetsWithSameSpec(spec=make_spec("/" + "\N{GRINNING FACE}" * 1_023), file_name="f", targets=targets)
    shard = ShardOfTargets(number=1, **group.model_dump(), joined_at=[NOW.timestamp() + 0.123_456] * 1_000)

    joined, saved = JoinBatch(groups=[group]).count_bytes(), len(shard.model_dump_json())
    assert joining.JOIN_BYTES_MAX * (1 + saved / joined) < 40_000_000


def test_a_target_joined_when_it_came_first() -> None:
    """A repeated request changes nothing; each shard has the time of each of its targets."""
    registry, later = JobTargetRegistry(order(shard_targets=2)), NOW + timedelta(seconds=3)
    registry.register_groups_within_limits(batch(1, 2), NOW)
    registry.register_groups_within_limits(batch(2, 3), later)

    joined_at = {
        key: at
        for shard in registry.build_shards()
        for (key, _, _), at in zip(shard.targets, shard.joined_at, strict=True)
    }

    assert joined_at == {1: NOW.timestamp(), 2: NOW.timestamp(), 3: later.timestamp()}


def test_what_there_is_room_for_is_in_beside_what_is_refused() -> None:
    """Who asks for too much does not hold up others of the same group."""
    registry = JobTargetRegistry(order(targets_max=3))
    large, small = batch(1, 2, 3, 4, spec=make_spec("/large")), batch(5, spec=make_spec("/small"))

    reply = registry.register_groups_within_limits(JoinBatch(groups=[*large.groups, *small.groups]), NOW)

    assert (reply.refused, registry.targets) == ([0], 1)


def test_a_job_takes_at_most_so_many_specs() -> None:
    """Each is at least one GSE task of its own."""
    registry = JobTargetRegistry(order())
    taken = [join_group(registry, batch(n, spec=make_spec(f"/{n}"))) for n in range(joining.SPECS_MAX + 1)]

    assert taken == [True] * joining.SPECS_MAX + [False]
    assert join_group(registry, batch(9_999, spec=make_spec("/0")))


def test_the_specs_of_one_project_leave_room_for_others() -> None:
    """However many it invents; a job that was started before this limit keeps to the one it was started with."""
    limit = joining.PROJECT_SPECS_MAX
    invented = [batch(n, spec=make_spec(signature=f"{n}")) for n in range(limit + 1)]
    registry, older = JobTargetRegistry(order(project_specs_max=limit)), JobTargetRegistry(order())

    assert [join_group(registry, each) for each in invented] == [True] * limit + [False]
    assert join_group(registry, batch(1, spec=make_spec(project_id="q")))
    assert all(join_group(older, each) for each in invented)


def test_a_project_that_cancelled_joins_no_more() -> None:
    """Others still do."""
    registry = JobTargetRegistry(order())
    registry.refuse_further_targets("p")

    assert not join_group(registry, batch(1))
    assert join_group(registry, batch(1, spec=make_spec(project_id="q")))


@given(st.integers(0, 1_500), st.floats(0, 15))
def test_the_pace_makes_groups_last_as_long_as_the_window(used: int, left: float) -> None:
    """At that pace no window runs out of groups, unless there are hardly any left."""
    pause = joining.compute_pause_by_batches_and_time_left(used, joining.BATCHES_MAX, left)

    assert joining.PAUSE_MIN_SECONDS <= pause <= joining.PAUSE_MAX_SECONDS
    if pause < joining.PAUSE_MAX_SECONDS:
        assert left / pause <= max(1, joining.BATCHES_MAX - used) + 1


def test_many_callers_get_longer_to_return() -> None:
    """A caller that came alone is not waited for any longer than the window's pace demands."""
    times = [joining.compute_time_for_callers_to_return(callers) for callers in (0, 1, 100, 1_000)]

    assert times == pytest.approx([0, 0.0004, 0.04, 0.1])


@pytest.mark.parametrize(
    "path", ["a/../b", "./a", "a\nb", "a\u2028b", " /etc/app.conf", "/etc/app.conf ", "/etc\u3000"]
)
def test_paths_that_could_mean_another_file_are_refused(path: str) -> None:
    """They become parts of URLs and ids."""
    with pytest.raises(ValueError, match="it "):
        validate_path_without_dots(path)


@pytest.mark.parametrize(
    "folder",
    [
        *("data", "", "/data/../etc", "C:data", "/a\x00b", "C:\\a\\..\\b"),
        *("C:\\a\\.. \\b", "C:\\a\\...\\b", "C:\\a \\b", "c:/a/b."),
    ],
)
def test_folders_that_could_mean_another_are_refused(folder: str) -> None:
    """GSE writes there as the named user."""
    with pytest.raises(ValueError, match="it "):
        normalize_folder(folder)


@pytest.mark.parametrize("folder", ["/", "/data/配置", "/data/a.", "/data/a ", "C:\\data.d", "d:/data"])
def test_plain_folders_are_taken(folder: str) -> None:
    """Also those of Windows."""
    assert normalize_folder(folder) == folder


@pytest.mark.parametrize(
    "written",
    ["/etc/app.conf", "etc/app.conf", "//etc//app.conf", "/etc", "/etc/", "etc"],
)
def test_one_file_has_one_path(written: str) -> None:
    """However it is written: whole, as its folder, with or without slashes before, between and behind."""
    assert build_full_path(written, "app.conf") == "/etc/app.conf"


@pytest.mark.parametrize(("path", "name", "full"), [("/", "a", "/a"), ("a", "a", "/a"), ("a/", "a", "/a/a")])
def test_a_slash_behind_makes_a_folder(path: str, name: str, full: str) -> None:
    """Also where the folder has the file's name."""
    assert build_full_path(path, name) == full


@pytest.mark.parametrize("name", ["a/b", "..", ".", " a"])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    """It becomes the last step of the file's path."""
    with pytest.raises(ValueError, match="it "):
        validate_file_name(name)


@pytest.mark.parametrize("agent_id", ["a b", "a\t", "a'\"", "a\\b", "主机"])
def test_agent_ids_that_gse_cannot_have_are_refused(agent_id: str) -> None:
    """A blank in one made GSE refuse the call for all."""
    with pytest.raises(ValueError, match="it holds"):
        validate_agent_id(agent_id)


@pytest.mark.parametrize(
    ("written", "container_id"), [("", ""), ("4f1a", "4f1a"), ("docker://4f1a", "4f1a"), ("containerd://4f1a", "4f1a")]
)
def test_a_container_is_known_without_its_runtime(written: str, container_id: str) -> None:
    """Nothing at all is the host itself."""
    assert normalize_container_id(written) == container_id


@pytest.mark.parametrize("written", ["docker://", "://", "containerd://"])
def test_a_runtime_without_a_container_is_not_the_host(written: str) -> None:
    """Who names a container does not want the file on its host."""
    with pytest.raises(ValueError, match="names a runtime and no container"):
        normalize_container_id(written)


@pytest.mark.parametrize("agent_id", ["", "0200000000525400", "0:10.0.0.1", "docker://4f1a", "!#$%&'()~"[:1]])
def test_agent_ids_of_both_forms_are_taken(agent_id: str) -> None:
    """Old ones hold a colon, containers come with the runtime's scheme."""
    assert validate_agent_id(agent_id) == agent_id
