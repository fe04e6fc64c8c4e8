"""No Python module over 600 lines without a reason: its docstring says "Long because ...".

Tests and tools count too; generated code does not.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 600
REASON = "long because"


def modules(root: Path) -> list[Path]:
    """Every Python file that git knows or would add, generated ones left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py", "*.pyi"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [root / name for name in listed.stdout.split("\0") if name]
    return [p for p in paths if "_pb2" not in p.name and p.is_file()]


def problem(path: Path) -> str | None:
    """What is wrong with one module, or None."""
    text = path.read_text()
    lines = text.count("\n")
    if lines <= LIMIT:
        return None
    if REASON in (ast.get_docstring(ast.parse(text)) or "").lower():
        return None
    mend = 'split it by idea, or say "Long because ..." in its docstring'
    return f"{path}: {lines} lines, more than {LIMIT}; {mend}"


def main() -> int:
    problems = [text for path in modules(ROOT) if (text := problem(path))]
    for text in problems:
        print(text, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
