"""Print the software and device of this machine and the identities of the models as JSON.

`identity.py DEVICE MODEL...`: runs as a separate process, so that the parent process uses no GPU
memory. It imports every module that the parts use, to detect missing ones before anything starts.
"""

import json
import sys


def main(device: str, *models: str) -> int:
    """Print the JSON. If something is missing, print one line and exit with code 2."""
    try:
        import torch

        import bertsecrets.models.training.finetune
        import bertsecrets.session  # noqa: F401
        from bertsecrets.errors import UserError
        from bertsecrets.models.locations import locate
        from bertsecrets.provenance import best_device, device_name, software
        from bertsecrets.store.files import digest
    except ImportError as error:
        print(f"{error}: install it, or give WHEELS=DIR", file=sys.stderr)
        return 2
    if device.startswith("cuda") and not torch.cuda.is_available():
        print(f"no GPU that torch {torch.__version__} can use: `make gpu` needs an NVIDIA GPU", file=sys.stderr)
        return 2
    try:
        refs = {model: locate(model, offline=True) for model in models}
        facts = {
            "device": device_name(best_device(device)),
            "software": software(),
            "models": {model: digest([ref.identity(), ref.tokenizer()]) for model, ref in refs.items()},
        }
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
