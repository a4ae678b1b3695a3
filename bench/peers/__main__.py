"""`python -m bench.peers`: renew the lock files of all peers."""

from __future__ import annotations

from bench.peers import environments


def main() -> None:
    """Every `.in` file names a peer."""
    for path in sorted(environments.FOLDER.glob("*/*.in")):
        environments.renew_lock(path.parent.name, path.stem)


if __name__ == "__main__":
    main()
