"""The quantities that claims are about, one module per topic. Importing this package registers all quantities."""

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from bertsecrets.claims.quantity import REGISTERED_QUANTITIES, Quantity

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

QUANTITIES: Mapping[str, Quantity] = MappingProxyType(REGISTERED_QUANTITIES)
