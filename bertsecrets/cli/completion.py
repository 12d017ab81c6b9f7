"""Shell completion: `bertsecrets --completion bash` prints a script that completes commands and options."""

import argparse
from collections.abc import Iterator

SHELLS = ("bash", "zsh")
SCRIPT = """\
# completion of bertsecrets: eval "$(bertsecrets --completion {name})"
{zsh}_bertsecrets() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" given="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in -*) ;; *) given="${{given:+$given }}$word" ;; esac
  done
  local words=""
  while [ -z "$words" ]; do
    case "$given" in
{cases}
      *" "*) given="${{given% *}}" ;;
      *) given="" ;;
    esac
  done
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _bertsecrets bertsecrets
"""


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return a script that completes commands, subcommands and options.

    Args:
        shell: `bash` or `zsh`, which emulates bash completion.
    """
    cases = "\n".join(f'      "{command}") words="{" ".join(words)}" ;;' for command, words in _words(parser))
    zsh = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return SCRIPT.format(name=shell, zsh=zsh, cases=cases)


def _words(parser: argparse.ArgumentParser, command: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each command with its subcommands and options."""
    if (load := getattr(parser, "load_commands", None)) is not None:
        load()
    words: list[str] = []
    for action in parser._actions:
        words += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            words += action.choices
            for name, child in action.choices.items():
                yield from _words(child, f"{command} {name}".strip())
        elif not action.option_strings and action.choices:
            words += map(str, action.choices)
    yield command, words
