"""What a business system asks for, as the workflow carries it."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from typing import Final

from pydantic import BaseModel

from domain.sealed import Sealed

PAGE_SIZE_MIN: Final = 100
PAGE_SIZE_MAX: Final = 1_000
PAGE_SIZE_DEFAULT: Final = 500
FILE_NAME_MAX_BYTES: Final = 200

_UNSAFE_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


class FileType(StrEnum):
    """The kinds of file a download can become."""

    CSV = "csv"


class DownloadOrder(BaseModel):
    """The workflow's argument: a checked request, its secrets sealed."""

    task_id: str
    project_id: str
    source_url: Sealed
    file_name: str
    type: FileType = FileType.CSV
    operator_id: str | None = None
    page_size: int = PAGE_SIZE_DEFAULT


def clean_file_name(name: str, extension: str) -> str:
    """Make a name safe for every file system and header without changing what people read in it.

    Directions, control characters and separators are replaced, leading dots dropped, the length cut to what file
    systems take, and the extension is ours.
    """
    name = unicodedata.normalize("NFC", name).encode(errors="replace").decode()
    name = "".join("" if unicodedata.category(letter) in ("Cf", "Cs", "Co") else letter for letter in name)
    name = _UNSAFE_IN_NAMES.sub("_", name).strip(" ")
    stem = re.sub(rf"\.{re.escape(extension)}$", "", name, flags=re.IGNORECASE).strip(" .") or "download"
    room = FILE_NAME_MAX_BYTES - len(extension) - 1
    return stem.encode()[:room].decode(errors="ignore").rstrip(" .") + f".{extension}"
