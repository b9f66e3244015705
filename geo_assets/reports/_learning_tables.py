"""Columns of the tables of `learning_controls`, and how their rows read on a page."""

import pyarrow as pa

from geo_assets.reports.tables import column

INTERVALS = [
    column("standard_error", pa.float64(), "sd(n - 1) over tasks / sqrt(n); shuffled: of the linear parts"),
    column("ci95_low", pa.float64(), "1.96 standard errors below"),
    column("ci95_high", pa.float64(), "1.96 standard errors above"),
    column("t95_low", pa.float64(), "the interval by Student's t, under 60 tasks"),
    column("t95_high", pa.float64(), "the interval by Student's t, under 60 tasks"),
]

SCORES_SCHEMA = pa.schema(
    [
        column("run", pa.string(), "training run; empty for controls, which are the same for all"),
        column("row", pa.string(), "which answers are scored"),
        column("group", pa.string(), "blind, told the country, base or adapter"),
        column("label", pa.string(), "name"),
        column("arm", pa.string(), "slug of the arm; empty for controls"),
        column("complete", pa.bool_(), "every (task, sample) is scored; there are no figures otherwise"),
        column("tasks", pa.int32(), "tasks in the mean"),
        column("k", pa.int32(), "passes"),
        column("episodes", pa.int32(), "scored episodes"),
        column("mean", pa.float64(), "mean over tasks of the mean reward; controls at cost 0"),
        *INTERVALS,
        column("no_guess_pct", pa.float64(), "no usable guess, % of episodes"),
        column("turns", pa.float64(), "mean calls"),
        column("looks", pa.float64(), "mean calls of look"),
        column("median_km", pa.float64(), "median distance over guesses"),
        column("country_pct", pa.float64(), "answer in the true country, % of the row's episodes or answers"),
        column("within750_pct", pa.float64(), "answer within 750 km, % of the row's episodes or answers"),
        column("note", pa.string(), "how the row is made"),
        column("curve", pa.string(), "curve of the rewards"),
        column("environment_version", pa.string(), "environment played"),
        column("harness_version", pa.string(), "code that played"),
        column("sweep_version", pa.string(), "data version of the arm's sweep"),
    ]
)

GAINS_SCHEMA = pa.schema(
    [
        column("run", pa.string(), "training run"),
        column("comparison", pa.string(), "which difference"),
        column("label", pa.string(), "the difference in words"),
        column("unit", pa.string(), "reward, or share of the gain"),
        column("tasks", pa.int32(), "tasks paired"),
        column("figure", pa.float64(), "mean over tasks of the difference"),
        *INTERVALS,
        column("bootstrap95_low", pa.float64(), "2.5 % point over resampled tasks; empty where it is open"),
        column("bootstrap95_high", pa.float64(), "97.5 % point over resampled tasks"),
        column("p", pa.float64(), "two-sided, from figure / standard error"),
        column("better_on", pa.int32(), "tasks above zero; empty where a task's value is a linear part"),
        column("curve", pa.string(), "curve of the rewards"),
    ]
)

CHANGES_SCHEMA = pa.schema(
    [
        column("run", pa.string(), "training run"),
        column("measure", pa.string(), "what is measured"),
        column("label", pa.string(), "the measure in words"),
        column("unit", pa.string(), "its unit"),
        column("before", pa.float64(), "base arm"),
        column("after", pa.float64(), "adapter arm"),
        column("change", pa.float64(), "after - before"),
        column("standard_error", pa.float64(), "of the change, paired over tasks; none of a median"),
        column("ci95_low", pa.float64(), "change - 1.96 standard errors"),
        column("ci95_high", pa.float64(), "change + 1.96 standard errors"),
    ]
)

CLAIMS_SCHEMA = pa.schema(
    [
        column("run", pa.string(), "training run"),
        column("claim", pa.string(), "name of the claim, and of the check that carries it"),
        column("figure", pa.float64(), "what it rests on; empty where there is none"),
        column("low", pa.float64(), "lower end of its 95 % interval"),
        column("high", pa.float64(), "upper end of its 95 % interval"),
        column("holds", pa.bool_(), "whether it holds"),
        column("says", pa.string(), "the claim in words"),
        column("why_not", pa.string(), "why there is no figure"),
    ]
)

SCORES_MARKDOWN = {
    "run": "{run}",
    "answers": "{label}",
    "reward": "{mean:.4f}",
    "standard error": "{standard_error:.4f}",
    "95 % interval": "{ci95_low:.4f} to {ci95_high:.4f}",
    "median km": "{median_km:,.0f}",
    "country %": "{country_pct:.1f}",
    "≤ 750 km %": "{within750_pct:.1f}",
    "no guess %": "{no_guess_pct:.1f}",
    "turns": "{turns:.2f}",
    "looks": "{looks:.2f}",
    "tasks": "{tasks}",
    "complete": "{complete}",
    "how": "{note}",
}

GAINS_MARKDOWN = {
    "run": "{run}",
    "difference": "{label}",
    "unit": "{unit}",
    "figure": "{figure:+.4f}",
    "standard error": "{standard_error:.4f}",
    "95 % interval (±1.96 se)": "{ci95_low:+.4f} to {ci95_high:+.4f}",
    "bootstrap 95 %": "{bootstrap95_low:+.4f} to {bootstrap95_high:+.4f}",
    "p": "{p:.2g}",
    "better on": "{better_on} of {tasks}",
}

CHANGES_MARKDOWN = {
    "run": "{run}",
    "measure": "{label}",
    "base": "{before:,.3f} {unit}",
    "adapter": "{after:,.3f} {unit}",
    "change": "{change:+,.3f}",
    "95 % interval": "{ci95_low:+.3f} to {ci95_high:+.3f}",
}

CLAIMS_MARKDOWN = {
    "run": "{run}",
    "claim": "{says}",
    "figure": "{figure:.4f}",
    "95 % interval": "{low:.4f} to {high:.4f}",
    "holds": "{verdict}",
}
