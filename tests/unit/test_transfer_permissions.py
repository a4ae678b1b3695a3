"""What is permitted to a project: one permission has all of a request, and a refusal names what has none."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from domain.faults import Forbidden
from domain.transfers import models
from domain.transfers.models import FileByBizAppAndPath
from domain.transfers.permissions import (
    NOT_PERMITTED,
    TransferPermission,
    find_overlap_with_other_project,
    require_transfers_allowed_to_all_hosts,
)

FILE = FileByBizAppAndPath(biz_id=2, app_id=7, path="/etc/app.conf")


def refusal(
    *permissions: TransferPermission,
    file: FileByBizAppAndPath = FILE,
    user: str = "root",
    folder: str = "/data/config",
    hosts: tuple[str, ...] = ("host-1",),
) -> str:
    """Return the error for a project with these permissions; empty if it may send."""
    try:
        require_transfers_allowed_to_all_hosts(permissions, file, user, folder, hosts)
    except Forbidden as error:
        return error.record.message
    return ""


def biz_2(**fields: object) -> TransferPermission:
    """A permission of the biz that the file is of."""
    return TransferPermission.model_validate({"biz_id": 2, **fields})


@pytest.mark.parametrize(
    ("permission", "refused"),
    [
        (biz_2(), ""),
        (biz_2(app_id=7), ""),
        (biz_2(app_id=8), "Biz 2 with app 7 is not permitted"),
        (biz_2(app_id=0), "Biz 2 with app 7 is not permitted"),
        (TransferPermission(biz_id=3), "Biz 2 with app 7 is not permitted"),
        (biz_2(path_prefixes=["/opt", "/etc"]), ""),
        (biz_2(path_prefixes=["/opt"]), "The path '/etc/app.conf' is not permitted"),
        (biz_2(users=["app", "root"]), ""),
        (biz_2(users=["app", "roo", "root2"]), "The user 'root' is not permitted"),
        (biz_2(folder_prefixes=["/data"]), ""),
        (biz_2(folder_prefixes=["/opt"]), "The folder '/data/config' is not permitted"),
        (biz_2(hosts=["host-1"]), ""),
        (biz_2(hosts=["host-*"]), ""),
        (biz_2(hosts=["*"]), ""),
        (biz_2(hosts=["host-1*"]), ""),
        (biz_2(hosts=["host-", "host", "host-11"]), "The host 'host-1' is not permitted"),
    ],
)
def test_each_point_of_a_permission_has_to_be_met(permission: TransferPermission, refused: str) -> None:
    """An empty list leaves its point open; else it names what is permitted, and nothing near it."""
    assert refusal(permission).startswith(refused)
    assert bool(refusal(permission)) == bool(refused)


@pytest.mark.parametrize(
    ("prefix", "path", "is_permitted"),
    [
        ("/etc", "/etc/x", True),
        ("/etc", "/etc", True),
        ("/etc", "/etcetera", False),
        ("/etc", "/x/etc", False),
        ("/etc", "/ETC/x", False),
        ("/etc/", "/etc/x", True),
        ("//etc//app/", "/etc/app/x", True),
        ("etc", "/etc/x", True),
        ("/etc/app.conf", "/etc/app.conf", True),
        ("/etc/app.conf", "/etc/app.conf.bak", False),
        ("/", "/anything", True),
    ],
)
def test_prefixes_of_paths_match_whole_split_path(prefix: str, path: str, is_permitted: bool) -> None:
    """`/etc` opens what is below it, however it was written, and not what only begins with the same letters."""
    permission = biz_2(path_prefixes=[prefix])
    assert (refusal(permission, file=FILE.model_copy(update={"path": path})) == "") == is_permitted


@pytest.mark.parametrize("written", ["etc//secret/", "//etc/secret", "/etc/secret/key", "etc/secret"])
def test_a_path_written_otherwise_is_the_same_path(written: str) -> None:
    """What is compared is the path that the job has, so that no spelling gets round a prefix."""
    path = models.build_full_path(written, "key")
    assert path == "/etc/secret/key"
    assert refusal(biz_2(path_prefixes=["/etc/app"]), file=FILE.model_copy(update={"path": path}))


@pytest.mark.parametrize(
    ("prefix", "folder", "is_permitted"),
    [
        ("/data", "/data", True),
        ("/data", "//data//config/", True),
        ("/data", "/database", False),
        ("/data", r"/data\config", False),
        ("/", "/anywhere", True),
        ("/", r"C:\config", False),
        (r"C:\config", r"c:\CONFIG\app", True),
        (r"C:\config", "C:/config/app", True),
        (r"C:\config", r"C:\configuration", False),
        (r"C:\config", r"D:\config", False),
        (r"C:\config", "/config", False),
    ],
)
def test_prefixes_of_folders_match_whole_split_path(prefix: str, folder: str, is_permitted: bool) -> None:
    """On Windows either slash parts them, and case means nothing."""
    assert (refusal(biz_2(folder_prefixes=[prefix]), folder=folder) == "") == is_permitted


def test_no_two_permissions_make_one() -> None:
    """A user of the one and a path of the other are permitted by neither."""
    permissions = (biz_2(path_prefixes=["/etc"], users=["app"]), biz_2(path_prefixes=["/opt"], users=["root"]))
    assert "The user 'root'" in refusal(*permissions)
    assert refusal(*permissions, user="app") == ""


def test_hosts_may_be_in_different_permissions() -> None:
    """Each target is sent something of its own."""
    permissions = (biz_2(hosts=["host-1"]), biz_2(hosts=["host-2*"]))
    assert refusal(*permissions, hosts=("host-1", "host-2", "host-29")) == ""
    assert "'host-3'" in refusal(*permissions, hosts=("host-1", "host-3", "host-29"))


def test_a_host_needs_a_permission_that_has_the_rest_too() -> None:
    """One that has the host for another user opens nothing for this one."""
    permissions = (biz_2(users=["root"], hosts=["host-1"]), biz_2(users=["app"], hosts=["*"]))
    assert "'host-2'" in refusal(*permissions, hosts=("host-1", "host-2"))


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "The host 'h0' is not permitted"),
        (2, "The hosts 'h0', 'h1' are not permitted"),
        (3, "The hosts 'h0', 'h1', 'h2' are not permitted"),
        (5_000, "The hosts 'h0', 'h1', 'h2' and 4,997 more are not permitted"),
    ],
)
def test_the_first_few_hosts_are_named(count: int, sentence: str) -> None:
    """Of the others it is said how many there are."""
    assert refusal(biz_2(hosts=["host-1"]), hosts=tuple(f"h{n}" for n in range(count))).startswith(sentence)


def test_nothing_is_permitted_by_no_permission() -> None:
    """A project without any, while others have some, is refused with a hint who can open it."""
    with pytest.raises(Forbidden, match="Biz 2 with app 7") as refused:
        require_transfers_allowed_to_all_hosts([], FILE, "root", "/data", ["host-1"])
    assert refused.value.record.code == NOT_PERMITTED
    assert "PUT /v1/projects/{project_id}/transfer-permissions" in refused.value.record.hint


@pytest.mark.parametrize(
    ("mine", "theirs", "is_taken"),
    [
        ((2, 7), (2, 7), True),
        ((2, 7), (2, 8), False),
        ((2, 7), (3, 7), False),
        ((2, None), (2, 7), True),
        ((2, 7), (2, None), True),
        ((2, None), (2, None), True),
        ((2, None), (3, None), False),
        ((2, 0), (2, None), True),
    ],
)
def test_a_biz_and_app_belong_to_one_project(
    mine: tuple[int, int | None], theirs: tuple[int, int | None], is_taken: bool
) -> None:
    """No app named is every app; prefixes, users and hosts do not make two of one pair."""
    wanted = TransferPermission(biz_id=mine[0], app_id=mine[1], path_prefixes=("/mine",))
    other = TransferPermission(biz_id=theirs[0], app_id=theirs[1], path_prefixes=("/theirs",))
    found = find_overlap_with_other_project([TransferPermission(biz_id=9), wanted], [("prj_other", other)])
    assert found == ((wanted, "prj_other", other) if is_taken else None)


@pytest.mark.parametrize("pattern", ["*host", "ho*st", "host**"])
def test_a_star_stands_at_the_end_only(pattern: str) -> None:
    """Elsewhere it would look as if it meant something."""
    with pytest.raises(ValidationError, match="before its end"):
        biz_2(hosts=[pattern])
