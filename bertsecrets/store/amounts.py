"""Amounts as a person reads them: bytes and times."""


def in_bytes(number: float) -> str:
    """Return a number of bytes as a person reads it.

    >>> in_bytes(90_900_000), in_bytes(1_234_000_000)
    ('90.9 MB', '1.23 GB')
    """
    amount, unit = float(number), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.3g} {unit}" if unit != "bytes" else f"{int(number)} bytes"


def in_time(seconds: float | None) -> str:
    """Return a time as a person reads it.

    >>> in_time(12.3), in_time(200), in_time(7300), in_time(None)
    ('12 s', '3 min 20 s', '2 h 1 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
