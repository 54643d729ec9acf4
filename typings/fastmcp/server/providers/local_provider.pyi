from typing import Any

class LocalProvider:
    _components: dict[str, Any]
