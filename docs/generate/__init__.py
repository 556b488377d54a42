"""The pages of the documentation that are made of the code: `make docs` writes them into `docs/reference/`.

Each module makes one page, or one kind of pages, and returns Markdown. Nothing is written here by hand that the code
says already: a new command, key, setting, table or error is on its page with the next `make docs`.
"""

from __future__ import annotations

from docs.generate import commands, documents, errors, rejections, settings, source_file, tables, views

REFERENCE = """# Reference

These pages are made of the code that they describe, each time the site is built.

| page | lists |
| --- | --- |
| [Source file](source-file.md) | every key of a source file, with its values and its default |
| [Command line](commands.md) | every command of `tidemark`, with its arguments and options |
| [Settings](settings.md) | every environment variable `TIDEMARK_…`, with its default |
| [Views and functions](views.md) | the names that people query: published rows, the past, marts |
| [Stored tables](tables.md) | the Delta tables behind these names, with their columns |
| [Error codes](errors.md) | every refusal, with its cause, its facts and the next step |
| [Rejections](rejections.md) | the rules of quarantine, and refusals of SQL |
| [Decisions](decisions/index.md) | why Tidemark is built as it is |

Pages of the repository: [source files, kind by kind](source-files.md), [DAGs](dags.md), [dbt](dbt.md),
[the engine](engine.md), [windows of any DataFrame](windows.md), [security](security.md),
[contributing](contributing.md), [changelog](changelog.md).
"""


def reference_pages() -> dict[str, str]:
    """The text of each generated page, by its path below `docs/reference/`."""
    return {
        "index.md": REFERENCE,
        "source-file.md": source_file.page(),
        "commands.md": commands.page(),
        "settings.md": settings.page(),
        "views.md": views.page(),
        "tables.md": tables.page(),
        "errors.md": errors.page(),
        "rejections.md": rejections.page(),
        **documents.pages(),
    }
