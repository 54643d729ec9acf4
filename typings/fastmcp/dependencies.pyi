from collections.abc import Callable
from typing import Any

def Depends(dependency: Callable[..., Any]) -> Any: ...  # noqa: N802
