"""Random names: each is given once, also by processes that one forks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from infra.secrets import BLOCK_TOKENS, create_random_token

ROOT = Path(__file__).parent.parent.parent
FORKING = """
import os
from infra.secrets import BLOCK_TOKENS, create_random_token
create_random_token()
child = os.fork()
names = " ".join(create_random_token() for _ in range(BLOCK_TOKENS))
if child:
    os.waitpid(child, 0)
os.write(1, f"{names} ".encode())
"""


def test_each_is_another() -> None:
    """Over several blocks, all of one shape."""
    names = [create_random_token() for _ in range(4 * BLOCK_TOKENS)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)


def test_a_child_gives_no_name_of_its_parent_s() -> None:
    """What the parent has in store is not the child's."""
    answer = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True, cwd=ROOT, text=True)
    names = answer.stdout.split()
    assert len(names) == 2 * BLOCK_TOKENS
    assert len(set(names)) == len(names)
