"""What a store may keep of a checkpoint's weights once everything is measured: nothing, 16 bits, or all."""

from typing import Literal, get_args

Keep = Literal["none", "half", "full"]
KEEPS: tuple[Keep, ...] = get_args(Keep)  # the less the smaller
