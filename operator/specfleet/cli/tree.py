"""One SpecDecodeDeployment as a tree: what it is doing, why it waits, its revisions and pods, the evidence. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from specfleet.cli.capacity import plan, standing
from specfleet.cli.evidence import decisions, metrics, notes
from specfleet.cli.fleet import Branch, Fleet, PodLine
from specfleet.cli.words import Shown, age, count, elide, since

GUIDE = 8  # columns that the tree takes left of a pod
_LEAST_NODE = 8
_ROLES = {"stable": "green", "canary": "cyan", "first": "cyan", "aborted": "red"}
_READY = {"True": ("✔", "Ready", "green"), "False": ("✖", "NotReady", "red")}
_PODS = {
    "Ready": ("✔", "green"),
    "Starting": ("◌", "cyan"),
    "ContainerCreating": ("◌", "cyan"),
    "PodInitializing": ("◌", "cyan"),
    "Pending": ("◌", "yellow"),
    "Draining": ("↓", "dim"),
    "Terminating": ("↓", "dim"),
    "Succeeded": ("↓", "dim"),
}


@dataclass(frozen=True, slots=True)
class _View:
    fleet: Fleet
    now: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from _sections(self.fleet, self.now, options.max_width)


def view(fleet: Fleet, now: float) -> Shown:
    """The whole view of `fleet` at `now` (seconds since the epoch), as wide as the terminal allows."""
    return Shown(_View(fleet, now))


def _sections(fleet: Fleet, now: float, width: int) -> Iterator[RenderableType]:
    yield _tree(fleet, now, width)
    canary, step = fleet.status.get("canary") or {}, fleet.status.get("step") or {}
    if rows := canary.get("plan"):
        yield Group("", plan(rows, "Plan", standing(step, rows)))
    judged, decided = fleet.status.get("metrics") or (), fleet.status.get("decisions") or ()
    if judged and canary:
        yield Group("", metrics(judged, width, str(fleet.status.get("dropped") or "")))
    if decided:
        yield Group("", decisions(decided, now))
    if fleet.notes:
        yield Group("", notes(fleet.notes))


def _tree(fleet: Fleet, now: float, width: int) -> Tree:
    tree = Tree(Text("\n").join(head(fleet, now)), guide_style="dim")
    layout = _layout([pod for branch in fleet.branches for pod in branch.pods], now, width - GUIDE)
    for branch in fleet.branches:
        node = tree.add(_branch(branch, str(fleet.status.get("weight", ""))))
        for pod in branch.pods:
            node.add(_pod(pod, layout, now))
    if fleet.earlier:
        tree.add(Text(f"earlier, without pods: {', '.join(fleet.earlier)}", style="dim"))
    return tree


def head(fleet: Fleet, now: float) -> Iterator[Text]:
    """State, what is waited for and what to do about it, step and figures: one line each."""
    symbol, word, style = _READY.get(fleet.ready, ("◌", "Unknown", "yellow"))
    line = Text.assemble((f"{symbol} {fleet.name}", f"bold {style}"), "  ", (word, style))
    if fleet.reason:
        line.append(f"  {fleet.reason}", "bold red" if fleet.stalled else "bold")
    if fleet.namespace:
        line.append(f"  namespace {fleet.namespace}", "dim")
    yield line
    if fleet.message:
        yield Text(fleet.message)
    if fleet.todo:
        yield Text(f"→ {fleet.todo}", "yellow")
    for facts in (_step(fleet, now), _facts(fleet), *(fleet.status.get("routing") or ())):
        if facts:
            yield Text(facts, "dim")


def _step(fleet: Fleet, now: float) -> str:
    step = fleet.status.get("step") or {}
    if not step:
        return ""
    reachable = f" (reachable {step['reachable']})" if step.get("reachable") else ""
    parts = [
        f"step {step.get('index')}/{step.get('of')}",
        f"weight asked {step.get('askedWeight', '?')}{reachable}, actual {fleet.status.get('weight', '?')}",
        f"counted {step['counted']}" if step.get("counted") else "",
        f"since {then}" if (then := since(step.get("since"), now)) else "",
    ]
    return " · ".join(part for part in parts if part)


def _facts(fleet: Fleet) -> str:
    forms = {
        "ready": "{} ready",
        "proposalLength": "k {}",
        "acceptance": "accepted {}",
        "tokensPerStep": "{} tokens/step",
        "stepTime": "{}/step",
        "model": "{}",
        "gpu": "on {}",
    }
    return " · ".join(form.format(fleet.status[key]) for key, form in forms.items() if fleet.status.get(key))


def _branch(branch: Branch, weight: str) -> RenderableType:
    style = _ROLES.get(branch.role, "dim")
    symbol = "○" if not branch.ready else "●" if branch.ready >= branch.wanted else "◐"
    role = f"{branch.role} {weight}" if branch.role == "canary" and weight else branch.role
    parts = [(f"{symbol} {branch.name}", f"bold {style}"), (role, style), (branch.speculation, "")]
    parts.append((f"{branch.ready}/{branch.wanted} ready", ""))
    line = Text("  ").join(Text(text, style) for text, style in parts if text)
    return _with_below(line, branch.note or branch.guards, "yellow" if branch.note else "dim")


def _with_below(line: Text, said: str, style: str = "yellow") -> RenderableType:
    """`line`, and set in under it what is the matter."""
    return Group(line, Padding(Text(said, style), (0, 0, 0, 2))) if said else line


@dataclass(frozen=True, slots=True)
class _Layout:
    """Widths of the columns of all pods; `folded` puts what follows the name on a line of its own."""

    name: int
    cells: tuple[int, ...]
    folded: bool


def _cells(pod: PodLine, now: float) -> tuple[str, ...]:
    """State, age, GPUs, restarts, node. The node is last, and gives way."""
    state = pod.state
    if pod.draining_since is not None and state == "Draining":
        state = f"{state} {age(now - pod.draining_since)}"
    restarts = count(pod.restarts, "restart") if pod.restarts else ""
    return (state, age(now - pod.started) if pod.started else "", pod.gpus, restarts, pod.node)


def _layout(pods: list[PodLine], now: float, width: int) -> _Layout:
    columns = list(zip(*(_cells(pod, now) for pod in pods), strict=True))
    cells = [max(map(len, column)) for column in columns]
    name = max((len(pod.name) + 2 for pod in pods), default=0)
    if not cells:
        return _Layout(0, (), False)
    fixed = sum(cell + 2 for cell in cells[:-1] if cell) + 2
    room = width - name - fixed
    folded = bool(cells[-1]) and room < min(cells[-1], _LEAST_NODE)
    cells[-1] = min(cells[-1], max(width - fixed if folded else room, _LEAST_NODE))
    return _Layout(name, tuple(cells), folded)


def _pod(pod: PodLine, layout: _Layout, now: float) -> RenderableType:
    symbol, style = _PODS.get(pod.state, ("✖", "red"))
    texts = [elide(text, size) if size else "" for text, size in zip(_cells(pod, now), layout.cells, strict=True)]
    columns = [Text(text.ljust(size), "dim") for text, size in zip(texts, layout.cells, strict=True) if size]
    columns[0].stylize(style)
    name = Text(f"{symbol} {pod.name}")
    name.stylize(style, 0, 1)
    if layout.folded:
        name.append("\n  ")
    else:
        name.pad_right(layout.name - len(name) + 2)
    line = name + Text("  ").join(columns)
    line.rstrip()
    return _with_below(line, pod.detail)
