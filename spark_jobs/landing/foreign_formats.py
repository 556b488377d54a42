"""Formats that no reader of Tidemark reads, recognised by their first bytes, each with the way to a format that is
read."""

from __future__ import annotations

_SHEET = (
    "save the sheet as CSV or Parquet: in the program that made it, or with `pandas.read_excel(FILE).to_parquet(…)`"
)
_AGAIN = "or compress it with gzip or zstd"
_ARROW = "convert it to Parquet with pyarrow: `parquet.write_table"
_PLUGIN = "or read it with a plugin (`TIDEMARK_PLUGINS`)"
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"BZh", "a file compressed with bzip2", f"decompress it (`bunzip2 FILE`), {_AGAIN}"),
    (b"\xfd7zXZ", "a file compressed with xz", f"decompress it (`unxz FILE`), {_AGAIN}"),
    (b"\x04\x22\x4d\x18", "a file compressed with lz4", f"decompress it (`lz4 -d FILE`), {_AGAIN}"),
    (b"7z\xbc\xaf", "an archive of 7-Zip", "unpack it, and name the files in it"),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet or document of an old Microsoft Office", _SHEET),
    (b"%PDF", "a PDF document", "export the table in it as CSV"),
    (b"SQLite format 3", "a database of SQLite", "export it: `sqlite3 -header -csv FILE 'SELECT * FROM t'`"),
    (b"Obj\x01", "a file of Avro", f"convert it to Parquet or NDJSON, {_PLUGIN}"),
    (b"ORC", "a file of ORC", f"{_ARROW}(orc.read_table(FILE), …)`"),
    (b"ARROW1", "a file of Arrow", f"{_ARROW}(feather.read_table(FILE), …)`"),
    (b"<?xml", "a document of XML", f"convert it to CSV or NDJSON, {_PLUGIN}"),
    (b"<!DOCTYPE html", "a page of HTML, as a server answers to a wrong address or login", "download the file again"),
    (b"<html", "a page of HTML, as a server answers to a wrong address or login", "download the file again"),
)  # fmt: skip
_ZIP = b"PK\x03\x04"
_TAR_MARK = slice(257, 262)


def foreign_format(head: bytes) -> tuple[str, str] | None:
    """The name of the format of a file that begins with `head` (some hundred bytes), as part of a sentence, and the
    next step for such a file; None if the bytes are of no such format."""
    if head.startswith(_ZIP):
        if b"xl/" in head or b"[Content_Types].xml" in head:
            return "a spreadsheet of Excel", _SHEET
        if b"opendocument.spreadsheet" in head:
            return "a spreadsheet of OpenDocument", _SHEET
        return "a ZIP archive", "unpack it (`unzip FILE`), and name the files in it; gzip and zstd are read as they are"
    if head[_TAR_MARK] == b"ustar":
        return "a tar archive", "unpack it (`tar -xf FILE`), and name the files in it"
    return next(((format_name, step) for start, format_name, step in _FOREIGN if head.startswith(start)), None)
