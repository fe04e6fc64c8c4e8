"""Users of this host by name or uid."""


def find_user(word: str) -> tuple[str, int] | None:
    """(name, uid) of a name or a uid; the name is "" for a uid that no user has; None for no such user."""
    import pwd

    try:
        found = pwd.getpwnam(word)
    except KeyError:
        pass
    else:
        return found.pw_name, found.pw_uid
    if not (word.isascii() and word.isdigit()):
        return None
    try:
        found = pwd.getpwuid(int(word))
    except (KeyError, OverflowError):
        return "", int(word)
    return found.pw_name, found.pw_uid


def name_of(uid: int) -> str:
    """The user's name, the number when there is none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def group_name(gid: int) -> str:
    """The group's name, the number when there is none."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)


def find_group(word: str) -> int | None:
    """The gid of a name or number; None for no such group."""
    import grp

    try:
        return grp.getgrnam(word).gr_gid
    except KeyError:
        return int(word) if word.isascii() and word.isdigit() else None
