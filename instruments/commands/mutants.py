"""`python -m instruments mutants`, which shows whether tests detect small faults in the package."""

import argparse

from instruments.commands import add_instrument


def add_parsers(commands) -> None:
    """Add the command and its options to the command line."""
    parser = add_instrument(
        commands,
        "mutants",
        "insert small faults into modules, one at a time, and list those that tests do not detect",
        "mutants --module bertsecrets/reading.py --tests tests/test_reading.py",
        mutants,
    )
    parser.add_argument("--module", nargs="+", required=True, metavar="FILE", help="modules to change")
    parser.add_argument("--tests", nargs="+", required=True, metavar="FILE", help="test files to run on each fault")
    parser.add_argument("--count", type=int, default=5, metavar="N", help="number of faults per module (default: 5)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the random choice (default: 1)")


def mutants(options: argparse.Namespace) -> None:
    """Print each fault with the test that detects it, and the number of detected faults.

    Raises:
        UserError: If a module does not exist, or the tests fail without a fault.
    """
    from instruments.mutants import judged, sampled

    chosen = sampled(options.module, options.count, options.seed)
    detected = 0
    for mutant, test in judged(chosen, [*options.tests, "-m", "not slow"]):
        detected += bool(test)
        print(f"{'detected' if test else 'MISSED'}  {mutant}" + f"  ({test[:100]})" * bool(test), flush=True)
    print(f"{detected} of {len(chosen)} detected")
