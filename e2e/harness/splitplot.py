"""Draws how the part of the requests that a canary got followed the part that was asked for."""

from collections.abc import Sequence
from pathlib import Path


def draw(seconds: Sequence[tuple[float, float]], gateway: str, file: Path) -> None:
    """An SVG of (asked, measured) shares, one pair a second."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "split", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
    times = range(len(seconds))
    axes.plot(times, [100 * measured for _, measured in seconds], color="#e4572e", linewidth=0.8, label="measured")
    axes.step(times, [100 * asked for asked, _ in seconds], "k--", where="post", linewidth=1.2, label="asked")
    axes.set(xlabel="seconds", ylabel="requests to the new revision, %", ylim=(-3, 103), xlim=(0, max(1, len(seconds))))
    axes.set_title(f"A rollout behind {gateway}: 100 requests/s at the load generator, second by second", fontsize=10)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
