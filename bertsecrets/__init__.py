"""Every claim of *Revealing the Dark Secrets of BERT* (Kovaleva et al. 2019, K19) as a benchmark that can fail.

```python
import bertsecrets as bs

session = bs.Session(model="minilm", glue="GLUE")
session.measure("attention-change", task="rte")
session.judge("C1", task="rte", seeds=3)
```

Names are imported on first use, which keeps `import bertsecrets` and `bertsecrets --help` fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from bertsecrets.claims.estimand import Estimand
    from bertsecrets.claims.loading import load_claims
    from bertsecrets.claims.quantity import Need, quantity
    from bertsecrets.claims.schema import Claim
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.errors import MissingError, UserError
    from bertsecrets.measures.registry import list_measures, measure
    from bertsecrets.models.families import Family, register_family
    from bertsecrets.options import RunOptions
    from bertsecrets.report.head_chart import head_map, show_head
    from bertsecrets.session import Session
    from bertsecrets.texts.own_tasks import OwnTask as Task
    from bertsecrets.types import Measurement, Subject

_HOMES = {
    "Claim": "claims.schema",
    "Estimand": "claims.estimand",
    "Family": "models.families",
    "Measurement": "types",
    "MissingError": "errors",
    "Need": "claims.quantity",
    "RunOptions": "options",
    "Session": "session",
    "Subject": "types",
    "Task": "texts.own_tasks:OwnTask",
    "UserError": "errors",
    "Verdict": "claims.verdict",
    "head_map": "report.head_chart",
    "list_measures": "measures.registry",
    "load_claims": "claims.loading",
    "measure": "measures.registry",
    "quantity": "claims.quantity",
    "register_family": "models.families",
    "show_head": "report.head_chart",
}

__all__ = [
    "Claim",
    "Estimand",
    "Family",
    "Measurement",
    "MissingError",
    "Need",
    "RunOptions",
    "Session",
    "Subject",
    "Task",
    "UserError",
    "Verdict",
    "head_map",
    "list_measures",
    "load_claims",
    "measure",
    "quantity",
    "register_family",
    "show_head",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, original = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"bertsecrets.{module}"), original or name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
