"""Why a credential was refused.  Each reason has its own class, its own code and its own text."""

from spur_core.errors import Unauthenticated


class CredentialError(Unauthenticated):
    """A credential is not accepted.  The text never contains the token."""

    code = "credential_refused"


class MissingCredential(CredentialError):
    """No token came with the call and the mode asks for one."""

    code = "credential_missing"

    def __init__(self) -> None:
        super().__init__("no credential was sent; get one with `spur token user` and set SPUR_AUTH_TOKEN")


class MalformedCredential(CredentialError):
    """The header or the token has not the shape of one."""

    code = "credential_malformed"

    def __init__(self, why: str) -> None:
        super().__init__(f"credential is malformed: {why}")


class ForgedCredential(CredentialError):
    """No key of this cluster made the signature, or the algorithm is not the pinned one."""

    code = "credential_forged"

    def __init__(self, why: str = "its signature was not made with this cluster's key") -> None:
        super().__init__(f"credential is forged: {why}")


class ExpiredCredential(CredentialError):
    """Genuine once; its time is over."""

    code = "credential_expired"

    def __init__(self, ago_secs: int) -> None:
        super().__init__(
            f"credential expired {ago_secs} s ago by the clock here; get a new one, or set the clock"
        )
        self.ago_secs = ago_secs


class NotYetValid(CredentialError):
    """Genuine, but from the future by more than clocks may differ."""

    code = "credential_not_yet_valid"

    def __init__(self, ahead_secs: int) -> None:
        super().__init__(f"credential is not valid for another {ahead_secs} s; compare the hosts' clocks")
        self.ahead_secs = ahead_secs


class WrongKind(CredentialError):
    """Genuine, but a token of another kind than this call takes."""

    code = "credential_wrong_kind"

    def __init__(self, got: str, wanted: "tuple[str, ...]") -> None:
        super().__init__(f"a {got} credential was sent where a {' or '.join(wanted)} credential is required")
        self.got = got
        self.wanted = wanted


class WrongAudience(CredentialError):
    """Genuine, but made for another audience or another cluster."""

    code = "credential_wrong_audience"

    def __init__(self, got: object, wanted: str) -> None:
        super().__init__(f"credential is for {got!r}, not for {wanted!r}")


class NotTheHolder(CredentialError):
    """Genuine and for that node, but another agent has the node's name at present."""

    code = "credential_not_current"

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node} is registered by another agent; register again")


class NoKeyConfigured(CredentialError):
    """A token came, and this server has no key to check it with."""

    code = "credential_no_key"

    def __init__(self) -> None:
        super().__init__("a credential was sent but no key is configured here; set [auth] jwt_key_file")
