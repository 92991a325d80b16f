"""Which code decides a run's numbers, as one digest.

Only the rooms between data and federation count, and of their files only what runs: comments, docstrings, help texts
and the words of error messages may change without voiding a run.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

ROOMS = ("data", "models", "kernels", "training", "protocol", "algorithms", "evaluation", "federation", "randomness.py")


@cache
def code_digest() -> str:
    """Identify the code that decides numbers."""
    root = Path(__file__).parents[1]
    content = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")) if (root / room).is_dir() else [root / room]:
            if path.suffix in (".py", ".cpp", ".h"):
                source = path.read_text(encoding="utf-8")
                content.update(path.relative_to(root).as_posix().encode())
                content.update((what_runs(source) if path.suffix == ".py" else source).encode())
    return content.hexdigest()[:16]


def what_runs(source: str) -> str:
    """Reduce a module to what can change a number: no comments, docstrings, descriptions or error messages."""
    return ast.unparse(_Reduce().visit(ast.parse(source)))


class _Reduce(ast.NodeTransformer):
    """Takes words for people out of a syntax tree."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args = []
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Go on, and keep bodies that have become empty valid."""
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            if getattr(node, name, None) == [] and name == "body" and not isinstance(node, ast.Module):
                setattr(node, name, [ast.Pass()])
        return node
