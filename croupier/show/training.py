"""The table of a training: its last epoch, its cost by local budget, and the assumptions."""

from __future__ import annotations

from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.show.blocks import Table
from croupier.show.text import counted, tier_budget


def training_table(result: JsonObject) -> Table:
    """Returns the last epoch of a training, and its cost by local budget.

    Raises:
        ValueError: the training has no epoch.
    """
    if not result["history"]:
        raise ValueError("no epoch has been trained; there is nothing to show")
    last, certificate = result["history"][-1], result["certificate"]
    simulated = ", simulated" if result["setting"]["mode"] == "simulation" else ""
    figure = f"error {last['error']:.4g}" if last["accuracy"] is None else f"accuracy {100 * last['accuracy']:.2f} %"
    done = f"{counted(last['epoch'], 'epoch')}, {counted(last['steps'], 'step')}: {figure}"
    cost = "ε of one record" if result["setting"]["unit"] == "record" else "central ε"
    table = Table(title=f"{result['title']}{simulated}\n{done}")
    table.columns += [
        "statement",
        cost if certificate is None else f"{cost} at δ = {round_up(certificate['delta'])}",
        "grade",
    ]
    if certificate is None:
        table.row("no noise", "∞", "not private")
        return table
    grade, tiers = certificate["grade"], certificate["tiers"]
    for local_epsilon, epsilon in tiers if len(tiers) <= 8 else [*tiers[:4], *tiers[-4:]]:
        budget = tier_budget(local_epsilon, certificate["local_delta"], up_to=False)
        table.row(f"clients of local ε {budget} per epoch", round_up(epsilon, 4), grade)
    table.row("if everyone else colludes", round_up(certificate["everyone_else_colludes"], 4), grade)
    for published in certificate["comparison"]:
        if published["epsilon"] is not None:
            table.row(f"{published['name']} (no guarantee)", round_up(published["epsilon"], 4), published["grade"])
    return table


def training_assumptions(result: JsonObject) -> str:
    """Returns the assumptions of a training's epsilon, a line each; "" without an epsilon."""
    certificate = result["certificate"]
    if certificate is None:
        return ""
    lines = [f"  · {assumption['text']}" for assumption in certificate["assumptions"]]
    return "\n".join([f"At δ {round_up(certificate['delta'])}, assuming that", *lines])


def training_remark(result: JsonObject) -> str:
    """Returns advice if the noise of a training is longer than its gradients; else ""."""
    noise, certificate = result["noise"], result["certificate"]
    if noise is None or noise["noise"] <= noise["signal"]:
        return ""
    setting = result["setting"]
    ratio = noise["noise"] / noise["signal"]
    measured = "" if noise["measured"] else "at least "
    longer = (
        f"{measured}{ratio:.1f} times as long as the gradient itself ({noise['noise']:.3g} and {noise['signal']:.3g})"
    )
    cost = "" if noise["epsilon"] is None else f", at ε = {round_up(noise['epsilon'], 3)}"
    if certificate is not None and noise["epsilon"] is not None:
        cost += f" {certificate['grade']}"
    clients = "clients" if setting["unit"] == "record" else "people"
    lines = [
        f"Averaged over all steps, the noise was {longer}: the model has learned more noise than data.",
        "Each of these changes alone would make both equally long, if the gradient stayed as it is:",
        f"  · fewer features, or a smaller model: {noise['parameters']:,} parameters, not {setting['dimension']:,}",
        f"  · a clipping norm of {noise['clipping_norm']:.2g} instead of {setting['clipping_norm']:.2g}, if most "
        "gradients are shorter than that; else it shortens the gradient, too",
        f"  · more epochs: {noise['epochs']:,} instead of {result['history'][-1]['epoch']:,}{cost}",
        f"  · more {clients}: {noise['users']:,}; or larger local budgets",
    ]
    return "\n".join(lines)
