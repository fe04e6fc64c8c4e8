from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("cluster_id", "src", "dst", "members_hash", "client_address", "command_version", "version", "wall_clock", "group_command_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_HASH_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WALL_CLOCK_FIELD_NUMBER: _ClassVar[int]
    GROUP_COMMAND_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    src: int
    dst: int
    members_hash: str
    client_address: str
    command_version: int
    version: str
    wall_clock: float
    group_command_version: int
    def __init__(self, cluster_id: _Optional[str] = ..., src: _Optional[int] = ..., dst: _Optional[int] = ..., members_hash: _Optional[str] = ..., client_address: _Optional[str] = ..., command_version: _Optional[int] = ..., version: _Optional[str] = ..., wall_clock: _Optional[float] = ..., group_command_version: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("hello", "messages")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    messages: bytes
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., messages: _Optional[bytes] = ...) -> None: ...

class MessagesEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotHeader(_message.Message):
    __slots__ = ("hello", "term", "index", "index_term", "size")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    INDEX_TERM_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    term: int
    index: int
    index_term: int
    size: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., term: _Optional[int] = ..., index: _Optional[int] = ..., index_term: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: SnapshotHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[SnapshotHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class SnapshotDone(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForwardItem(_message.Message):
    __slots__ = ("command", "read_index", "timeout_ms", "request_key")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    READ_INDEX_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_KEY_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    read_index: bool
    timeout_ms: int
    request_key: bytes
    def __init__(self, command: _Optional[bytes] = ..., read_index: bool = ..., timeout_ms: _Optional[int] = ..., request_key: _Optional[bytes] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("hello", "items")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    items: _containers.RepeatedCompositeFieldContainer[ForwardItem]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., items: _Optional[_Iterable[_Union[ForwardItem, _Mapping]]] = ...) -> None: ...

class ForwardRefusal(_message.Message):
    __slots__ = ("code", "text", "leader")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    leader: int
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ..., leader: _Optional[int] = ...) -> None: ...

class ForwardAnswer(_message.Message):
    __slots__ = ("result", "index", "refusal")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    index: int
    refusal: ForwardRefusal
    def __init__(self, result: _Optional[bytes] = ..., index: _Optional[int] = ..., refusal: _Optional[_Union[ForwardRefusal, _Mapping]] = ...) -> None: ...

class ForwardReply(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[ForwardAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[ForwardAnswer, _Mapping]]] = ...) -> None: ...

class StateDigest(_message.Message):
    __slots__ = ("index", "digest")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    index: int
    digest: str
    def __init__(self, index: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("hello", "digests")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    digests: _containers.RepeatedCompositeFieldContainer[StateDigest]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., digests: _Optional[_Iterable[_Union[StateDigest, _Mapping]]] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("hello", "role", "term", "leader", "first_index", "last_index", "commit_index", "applied_index", "snapshot_index", "snapshot_term", "silent_secs", "leads", "low_space", "abstains", "digests")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_INDEX_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_TERM_FIELD_NUMBER: _ClassVar[int]
    SILENT_SECS_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    LOW_SPACE_FIELD_NUMBER: _ClassVar[int]
    ABSTAINS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    role: str
    term: int
    leader: int
    first_index: int
    last_index: int
    commit_index: int
    applied_index: int
    snapshot_index: int
    snapshot_term: int
    silent_secs: float
    leads: bool
    low_space: bool
    abstains: bool
    digests: _containers.RepeatedCompositeFieldContainer[StateDigest]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., role: _Optional[str] = ..., term: _Optional[int] = ..., leader: _Optional[int] = ..., first_index: _Optional[int] = ..., last_index: _Optional[int] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., snapshot_index: _Optional[int] = ..., snapshot_term: _Optional[int] = ..., silent_secs: _Optional[float] = ..., leads: bool = ..., low_space: bool = ..., abstains: bool = ..., digests: _Optional[_Iterable[_Union[StateDigest, _Mapping]]] = ...) -> None: ...
