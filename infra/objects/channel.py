"""The way to the store: the synchronous client, the threads it runs on, and where our keys lie in the bucket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit

import certifi
import urllib3
from minio import Minio

from infra.objects.failures import translated
from infra.objects.wire import Client
from infra.settings import ObjectSettings

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 60.0

P = ParamSpec("P")
T = TypeVar("T")


class Channel:
    """One client, as many threads as may talk to the store at once, and one connection for each."""

    def __init__(self, settings: ObjectSettings) -> None:
        self.bucket = settings.bucket
        self.region = settings.region
        self._prefix = f"{settings.prefix.strip('/')}/" if settings.prefix.strip("/") else ""
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="objects")
        self._pool = _connection_pool(settings.threads)
        self.minio = self._client(settings, settings.endpoint, secure=settings.secure)
        public = urlsplit(settings.public_base)
        # The signature covers the host, so links are signed for the one that browsers use.
        self.public = (
            self._client(settings, public.netloc, secure=public.scheme == "https") if public.netloc else self.minio
        )

    def path(self, key: str) -> str:
        """Where a key lies in the bucket."""
        return self._prefix + key

    def key(self, path: str) -> str:
        """The key of what lies there."""
        return path.removeprefix(self._prefix)

    async def call(self, key: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work on a thread.

        A cancelled call waits for its thread: a put must not land after the clean-up that followed it.
        """

        def translate() -> T:
            with translated(key):
                return work(*args, **kwargs)

        job = self._threads.submit(translate)
        outcome = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.wait([outcome])
                outcome.exception()
            raise

    async def close(self) -> None:
        """Wait for the threads and close the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        self._pool.clear()

    def _client(self, settings: ObjectSettings, endpoint: str, *, secure: bool) -> Minio:
        return Client(
            endpoint,
            access_key=settings.access_key,
            secret_key=settings.secret_key.get_secret_value(),
            secure=secure,
            # Without a region the client asks the store for it before it signs.
            region=settings.region,
            http_client=self._pool,
        )


def _connection_pool(size: int) -> urllib3.PoolManager:
    return urllib3.PoolManager(
        maxsize=size,
        # A slim image has no certificates of its own; a private authority comes by the usual variable.
        ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
        timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS),
        retries=urllib3.Retry(
            total=3,
            backoff_factor=0.2,
            backoff_jitter=0.2,
            status_forcelist=[500, 502, 503, 504],
            # The store's own words say more than "too many retries".
            raise_on_status=False,
        ),
    )
