//! Formulas of KEDA's `scalingModifiers`: the part of the language Expr that numbers need.
//!
//! KEDA hands them to `expr-lang/expr` 1.17.8 (`pkg/scaling/modifiers/formula.go`, `apis/keda/v1alpha1/scaledobject_webhook.go`). Here
//! are numbers, `true`, `false`, `nil`, names of triggers, lists, `+ - * / % ** ^`, comparisons, `and or not`, `?:`, `??`, `let`, and the
//! functions of [`parse::FUNCTIONS`]. Numbers are whole or not, as there: `7 / 2` is 3.5, and `%` is for whole ones alone.
//! No library has these rules, so that they are ours; `tests/peers` holds them against the Go library.

mod evaluate;
mod parse;
mod types;

use evaluate::{Scope, Value, evaluate};
use parse::Node;
use types::Kind;

pub(crate) use evaluate::go_int;

/// What is wrong with a formula, or with what it comes to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {problem}")]
pub struct FormulaError {
    /// Which character it is about, from 1.
    pub at: usize,
    /// What is wrong.
    pub problem: String,
}

impl FormulaError {
    pub(crate) fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { at, problem: problem.into() }
    }
}

/// How KEDA makes a float of what comes out (`castToFloatIfNecessary`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cast {
    /// The text begins with `float(`: it is left as it is.
    Left,
    /// `float(...)` around it.
    Always,
    /// Around it too, but nil stays nil: the text has a `??`.
    UnlessNil,
}

/// A formula that was understood.
#[derive(Debug, Clone)]
pub struct Formula {
    root: Node,
    cast: Cast,
    names: usize,
}

impl Formula {
    /// Read a formula over the values of triggers with these names.
    ///
    /// # Errors
    ///
    /// What is not understood, or KEDA would refuse, with its place.
    pub fn new(text: &str, names: &[String]) -> Result<Self, FormulaError> {
        let root = parse::parse(text, names)?;
        let kind = types::kind(&root)?;
        let cast = if text.contains("??") {
            Cast::UnlessNil
        } else if text.starts_with("float(") {
            Cast::Left
        } else {
            Cast::Always
        };
        let fits = match cast {
            Cast::Left => matches!(kind, Kind::Float | Kind::Any),
            Cast::Always | Cast::UnlessNil => matches!(kind, Kind::Int | Kind::Float | Kind::Any | Kind::Nil),
        };
        if !fits {
            return Err(FormulaError::new(1, format!("it comes to {}, and KEDA wants a number", kind.words())));
        }
        let formula = Self { root, cast, names: names.len() };
        // As KEDA tries it out.
        formula.evaluate(&vec![Some(-1.0); names.len()])?;
        Ok(formula)
    }

    /// What it comes to with the values of the triggers; `None` in either place is nil.
    ///
    /// # Errors
    ///
    /// A value that something else was expected of.
    pub fn evaluate(&self, values: &[Option<f64>]) -> Result<Option<f64>, FormulaError> {
        debug_assert_eq!(values.len(), self.names);
        let found = evaluate(&self.root, &mut Scope::new(values))?;
        match (found, self.cast) {
            (Value::Float(value), _) => Ok(Some(value)),
            (Value::Int(value), Cast::Always | Cast::UnlessNil) => Ok(Some(value as f64)),
            (Value::Nil, Cast::UnlessNil) => Ok(None),
            (other, _) => {
                Err(FormulaError::new(1, format!("it comes to {}, and KEDA wants a number", other.kind().words())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["a", "b", "queue_1"].map(str::to_owned).to_vec()
    }

    fn value(text: &str) -> Result<Option<f64>, String> {
        let formula = Formula::new(text, &names()).map_err(|error| error.to_string())?;
        formula.evaluate(&[Some(3.0), Some(-2.5), None]).map_err(|error| error.to_string())
    }

    #[test]
    fn what_formulas_come_to() {
        let cases = [
            ("a", 3.0),
            ("a + b * 2", -2.0),
            ("(a + b) * 2", 1.0),
            ("7 / 2", 3.5),
            ("7 % 4", 3.0),
            ("-2 ** 2", -4.0),
            ("2 ^ 3 ** 2", 512.0),
            ("a > 2 ? 10 : 20", 10.0),
            ("a > 2 and not (b > 0) ? 1 : 0", 1.0),
            ("1 < a < 4 ? 1 : 0", 1.0),
            ("queue_1 ?? a", 3.0),
            ("(queue_1 ?? 2) + 1", 3.0),
            ("2 * queue_1 ?? 5 + 1", 11.0),
            ("max(a, b, 7)", 7.0),
            ("min([a, b])", -2.5),
            ("sum([a, b, 1])", 1.5),
            ("sum([a, b], # * 2)", 1.0),
            ("mean(a, [1, 2])", 2.0),
            ("median([4, a, 1, 2])", 2.5),
            ("count([a, b], {# > 1}) > 0 ? 5 : 0", 5.0),
            ("all([a, 1], # > 0) ? 1 : 0", 1.0),
            ("len(filter([a, b], # > 0))", 1.0),
            ("sum(map([a, b], # + 1))", 2.5),
            ("abs(b) + ceil(b) + floor(b) + round(b)", -5.5),
            ("int(b) + float(a)", 1.0),
            ("let x = a * 2; x + 1", 7.0),
            ("float(a) + 0.5", 3.5),
            ("1_000 + 0x10 + .5 + 1e1", 1026.5),
            ("true ? a : b", 3.0),
            ("a == 3 || 1 == 2 ? 1 : 2", 1.0),
            ("a ? : b", f64::NAN),
        ];
        for (text, expected) in cases {
            if expected.is_nan() {
                assert!(value(text).is_err(), "{text}");
            } else {
                assert_eq!(value(text), Ok(Some(expected)), "{text}");
            }
        }
        assert_eq!(value("queue_1 ?? nil"), Ok(None));
    }

    #[test]
    fn what_is_not_understood_says_where() {
        for (text, needle) in [
            ("a + ", "at character 5: the formula ends"),
            ("a + c", "at character 5: there is no trigger \"c\""),
            ("a +* b", "at character 4: unexpected \"*\""),
            ("(a", "at character 3: the formula ends where \")\" was expected"),
            ("a 'x'", "at character 3: unexpected \"'\""),
            ("a % 2", "at character 3: % is for whole numbers"),
            ("a && b", "at character 3: && is for true and false"),
            ("a > 1", "it comes to true or false"),
            ("float(a) > 1", "it comes to true or false"),
            ("a ? 1 : 2", "? is for true and false"),
            ("foo(a)", "at character 1: the function foo is not known"),
            ("trim(a)", "at character 1: the function trim is not known"),
            ("a ?? b + 1", "at character 8: + beside ?? needs parentheses"),
            ("queue_1 > 1 ? 1 : 2 3", "at character 21: unexpected \"3\""),
            ("max()", "max needs at least 1 value"),
            ("count([a])", "at character 1: count"),
            ("", "at character 1: the formula ends"),
            ("#", "at character 1: unexpected \"#\""),
            ("7 % 0", "% by 0"),
            ("1 ? 2 : 3", "? is for true and false"),
            ("\u{e4} + 1", "at character 1: unexpected"),
            ("9999999999999999999", "is too large"),
        ] {
            let error = value(text).expect_err(text);
            assert!(error.contains(needle), "{text}: {error}");
        }
        // Nil is a value like others until something is done with it.
        assert!(value("queue_1 + 1").unwrap_err().contains("+ is for numbers, not nil"));
        assert!(value("max(queue_1, 1)").unwrap_err().contains("max is for numbers, not nil"));
    }
}
