"""What goes wrong with a request, and whether another attempt can end differently."""

from __future__ import annotations

from qresolve.errors import Unproved


class HttpFailed(Unproved):
    """No usable answer. The message has the redacted address and the reason."""


class OfflineRefused(HttpFailed):
    """A request was needed while the network is forbidden."""


class RedirectRefused(HttpFailed):
    """The server leads to an address that is not followed."""


class DowngradeRefused(RedirectRefused):
    """The server leads from https to an address without encryption: what is read there could be anyone's."""


def is_retriable(reason: Exception) -> bool:
    """Whether the same request can go through a moment later."""
    import ssl  # noqa: PLC0415

    import httpx  # noqa: PLC0415

    if isinstance(reason, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
        return False
    cause: BaseException | None = reason
    while cause is not None:
        # Another attempt meets the same certificate.
        if isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(cause):
            return False
        cause = cause.__cause__ or cause.__context__
    return True


def reason_words(reason: Exception) -> str:
    """``reason`` in a few words, without logins."""
    import httpx  # noqa: PLC0415

    from qresolve.install.child import redact  # noqa: PLC0415

    text = redact(str(reason)) or type(reason).__name__
    if isinstance(reason, httpx.ConnectTimeout):
        return "cannot be reached (timed out)"
    if isinstance(reason, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(reason, (httpx.ConnectError, httpx.ProxyError)):
        return f"cannot be reached ({text})"
    return f"broke off ({text})"
