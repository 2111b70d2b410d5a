"""The user's package index, as pip reaches it.

pip's own finder code and session are used, in this process: so index, mirrors, certificates, proxies and
credentials are the ones that `pip config` and the environment say, nothing of them is written anywhere,
and no index name stands in this program. It is pip's internal interface; :func:`open_pip_index` is the
only place that touches it, and the generator, not the resolver, is what needs it.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from qresolve.errors import Unproved
from qresolve.wheels.ranges import HttpRanges, RangeResponse, RangesInvalid, shown_url
from qresolve.wheels.remote import ZipWheel, open_local_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from qresolve.wheels.remote import WheelSource

_CHUNK = 1024 * 1024
_OK = 200


class IndexUnreachable(Unproved):
    """The index has no answer for this project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """One wheel on the index. ``upload_time`` is RFC 3339 in UTC, None where the index does not say."""

    filename: str
    url: str
    sha256: str
    requires_python: str | None
    upload_time: str | None


class PackageIndex(Protocol):
    """Where wheels of a project are, whoever is asked."""

    def wheels(self, project: str) -> tuple[IndexFile, ...]:
        """Every wheel of ``project`` (its normalised name)."""

    def open_wheel(self, file: IndexFile) -> WheelSource:
        """The wheel behind ``file``."""

    def whole_wheel(self, file: IndexFile) -> AbstractContextManager[WheelSource]:
        """The wheel behind ``file``, fetched whole and checked, for as long as the context is open."""


class PipIndex:
    """Files by project name, and wheels read by ranges; made by :func:`open_pip_index`."""

    def __init__(self, *, session: Any, collector: Any, index_url: str) -> None:
        self._session = session
        self._collector = collector
        self._index_url = index_url

    def wheels(self, project: str) -> tuple[IndexFile, ...]:
        """Every wheel of ``project`` (its normalised name), in the index's order.

        Raises:
            IndexUnreachable: no answer, or files without a sha256.
        """
        return self.files(project, ".whl")

    def files(self, project: str, suffix: str) -> tuple[IndexFile, ...]:
        """Every file of ``project`` whose name ends in ``suffix``, in the index's order.

        Raises:
            IndexUnreachable: no answer, or files without a sha256.
        """
        from pip._internal.index.collector import parse_links  # noqa: PLC0415 - heavy
        from pip._internal.models.link import Link  # noqa: PLC0415 - heavy

        page = self._collector.fetch_response(Link(f"{self._index_url.rstrip('/')}/{project}/"))
        if page is None:
            raise IndexUnreachable(
                f"the index that pip is set up with does not answer for {project}",
                hint=f"pip index versions {project}",
            )
        files = []
        for link in parse_links(page):
            if not link.filename.endswith(suffix):
                continue
            if link.hash_name != "sha256" or link.hash is None:
                raise IndexUnreachable(f"the index gives no sha256 for {link.filename}")
            files.append(
                IndexFile(
                    filename=link.filename,
                    url=link.url_without_fragment,
                    sha256=link.hash,
                    requires_python=link.requires_python,
                    upload_time=_shown_time(link.upload_time),
                )
            )
        return tuple(files)

    def open_wheel(self, file: IndexFile) -> ZipWheel:
        """The wheel behind ``file``, read by ranges.

        Raises:
            RangesUnsupported: the server gives no ranges.
            WheelInvalid: no readable zip.
        """
        return ZipWheel(HttpRanges(self, file.url))

    @contextmanager
    def whole_wheel(self, file: IndexFile) -> Iterator[ZipWheel]:
        """The wheel behind ``file``, fetched whole into a temporary file and held against the index's sha256.

        Raises:
            IndexUnreachable: it is not what the index says, or does not come.
            WheelInvalid: no readable zip.
        """
        digest = hashlib.sha256()
        with tempfile.NamedTemporaryFile(suffix=".whl") as whole:
            with self.get(file.url, {"Accept-Encoding": "identity"}) as answer:
                if answer.status != _OK:
                    raise IndexUnreachable(f"{file.filename}: HTTP {answer.status}")
                for chunk in answer.chunks:
                    digest.update(chunk)
                    whole.write(chunk)
            whole.flush()
            if digest.hexdigest() != file.sha256:
                raise IndexUnreachable(f"{file.filename}: its sha256 is not the one that the index says")
            yield open_local_wheel(Path(whole.name))

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[RangeResponse]:
        """Send a GET by pip's session (the transport of :class:`~qresolve.wheels.ranges.HttpRanges`)."""
        from pip._vendor.requests import RequestException  # noqa: PLC0415 - heavy

        try:
            with self._session.get(url, headers=dict(headers), stream=True) as answer:
                yield RangeResponse(
                    status=answer.status_code,
                    headers={name.lower(): value for name, value in answer.headers.items()},
                    chunks=answer.raw.stream(_CHUNK, decode_content=False),
                )
        except RequestException as error:
            raise RangesInvalid(f"{shown_url(url)}: {type(error).__name__}") from error


def _shown_time(moment: Any) -> str | None:
    if moment is None:
        return None
    text: str = moment.isoformat().replace("+00:00", "Z")
    return text


@contextmanager
def open_pip_index() -> Iterator[PipIndex]:
    """The default index of the user's pip configuration, or pip's own default."""
    from pip._internal.commands.download import DownloadCommand  # noqa: PLC0415 - heavy
    from pip._internal.index.collector import LinkCollector  # noqa: PLC0415 - heavy

    command = DownloadCommand("download", "")
    options, _ = command.parse_args([])
    with command.main_context():
        session = command.get_default_session(options)
        collector = LinkCollector.create(session, options=options)
        yield PipIndex(session=session, collector=collector, index_url=options.index_url)
