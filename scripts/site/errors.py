"""The reference of errors: each with its cause and its cure, as its docstring says them."""

import inspect

import ekiden.errors

__all__ = ["classes", "page"]


def classes() -> list[type[BaseException]]:
    """Every exception of ekiden, in the order of the source."""
    found = [one for one in vars(ekiden.errors).values() if inspect.isclass(one)]
    return [one for one in found if issubclass(one, BaseException) and one.__module__ == "ekiden.errors"]


def page() -> str:
    """All of them, as a tree and one by one."""
    parts = [
        "# Errors",
        (
            "Every exception that ekiden raises on purpose is an `EkidenError`. All are in `ekiden.errors`, "
            "and most in `ekiden`, too."
        ),
        _intro(),
    ]
    for one in classes():
        if not issubclass(one, Exception):
            continue
        bases = ", ".join(f"`{base.__name__}`" for base in one.__bases__)
        parts.append(f"## {one.__name__} {{ #{one.__name__} }}")
        parts.append(f"A kind of {bases}.")
        parts.append(inspect.getdoc(one) or "")
    return "\n\n".join(parts) + "\n"


def _intro() -> str:
    """The tree, as the module draws it."""
    return f"```text\n{inspect.getdoc(ekiden.errors)}\n```"
