"""Every rule of every stage, in the order of its code."""

from servespec.compiler import plan_rules
from servespec.diagnostics import Rule
from servespec.runtime import config_rules, run_rules
from servespec.schema import source_rules, spec_rules


def every_rule() -> tuple[Rule, ...]:
    """The rules of all tables, sorted by code."""
    tables = (source_rules.RULES, spec_rules.RULES, plan_rules.RULES, config_rules.RULES, run_rules.RULES)
    return tuple(sorted((rule for rules in tables for rule in rules), key=lambda rule: rule.code))
