//! What a part of a formula is known to be before it is evaluated (`checker/checker.go` of Expr): KEDA refuses what cannot fit.

use super::FormulaError;
use super::parse::{Binary, Fold, Function, Node, Unary, What};

/// The values of triggers are floats, so that most is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nil,
    Bool,
    Int,
    Float,
    List,
    /// Not known before.
    Any,
}

impl Kind {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool => "true or false",
            Self::Int => "a whole number",
            Self::Float => "a number",
            Self::List => "a list",
            Self::Any => "anything",
        }
    }

    fn may_be_number(self) -> bool {
        matches!(self, Self::Int | Self::Float | Self::Any)
    }

    /// The one of two.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nil, kind) | (kind, Self::Nil) => kind,
            _ if self == other => self,
            _ => Self::Any,
        }
    }
}

/// What a formula comes to, as far as is known.
pub(super) fn kind(root: &Node) -> Result<Kind, FormulaError> {
    visit(root, &mut Names::default())
}

/// What names stand for at some place.
#[derive(Default)]
struct Names {
    variables: Vec<Kind>,
    elements: Vec<Kind>,
}

fn visit(node: &Node, names: &mut Names) -> Result<Kind, FormulaError> {
    let wants = |word: &str, wanted: &str, found: Kind| {
        Err(FormulaError::new(node.at, format!("{word} is for {wanted}, not {}", found.words())))
    };
    Ok(match &node.what {
        What::Nil => Kind::Nil,
        What::Bool(_) => Kind::Bool,
        What::Int(_) => Kind::Int,
        What::Float(_) | What::Trigger(_) => Kind::Float,
        What::Variable(place) => names.variables[*place],
        What::Element => names.elements.last().copied().unwrap_or(Kind::Any),
        What::List(all) => {
            for each in all {
                visit(each, names)?;
            }
            Kind::List
        }
        What::Unary(operator, inner) => match (operator, visit(inner, names)?) {
            (Unary::Not, Kind::Bool | Kind::Any) => Kind::Bool,
            (Unary::Not, found) => return wants("not", "true and false", found),
            (_, found) if found.may_be_number() => found,
            (_, found) => return wants("a sign", "numbers", found),
        },
        What::Binary(operator, left, right) => {
            let (left, right) = (visit(left, names)?, visit(right, names)?);
            return binary(node.at, *operator, left, right);
        }
        What::Choice(condition, yes, no) => {
            let condition = visit(condition, names)?;
            if !matches!(condition, Kind::Bool | Kind::Any) {
                return wants("?", "true and false", condition);
            }
            visit(yes, names)?.or(visit(no, names)?)
        }
        What::Call(function, values) => {
            let kinds = values.iter().map(|each| visit(each, names)).collect::<Result<Vec<_>, _>>()?;
            return call(node.at, *function, &kinds);
        }
        What::Over(fold, list, each) => {
            let found = visit(list, names)?;
            if !matches!(found, Kind::List | Kind::Any) {
                return wants(fold.word(), "lists", found);
            }
            let of = element(list, names)?;
            names.elements.push(of);
            let each = each.as_ref().map(|each| visit(each, names)).transpose();
            names.elements.pop();
            let each = each?;
            let judges = !matches!(fold, Fold::Sum | Fold::Map);
            if let Some(found) = each.filter(|kind| judges && !matches!(kind, Kind::Bool | Kind::Any)) {
                return wants(fold.word(), "conditions", found);
            }
            match fold {
                Fold::Sum => Kind::Any,
                Fold::Count => Kind::Int,
                Fold::All | Fold::Any | Fold::One | Fold::None => Kind::Bool,
                Fold::Filter | Fold::Map => Kind::List,
            }
        }
        What::Let(value, body) => {
            let value = visit(value, names)?;
            names.variables.push(value);
            let found = visit(body, names);
            names.variables.pop();
            found?
        }
    })
}

fn call(at: usize, function: Function, kinds: &[Kind]) -> Result<Kind, FormulaError> {
    let wants = |wanted: &str, found: Kind| {
        Err(FormulaError::new(at, format!("{} is for {wanted}, not {}", function.word(), found.words())))
    };
    let first = kinds[0];
    match function {
        // As Expr has it, which looks no further than the first list.
        Function::Max | Function::Min | Function::Mean | Function::Median => {
            for &kind in kinds {
                match kind {
                    Kind::List | Kind::Any => return Ok(Kind::Any),
                    Kind::Int | Kind::Float => {}
                    Kind::Nil | Kind::Bool => return wants("numbers", kind),
                }
            }
            Ok(first)
        }
        Function::Len if matches!(first, Kind::List | Kind::Any) => Ok(Kind::Int),
        Function::Len => wants("lists", first),
        _ if !first.may_be_number() => wants("numbers", first),
        Function::Abs => Ok(first),
        Function::Int => Ok(Kind::Int),
        Function::Ceil | Function::Floor | Function::Round | Function::Float => Ok(Kind::Float),
    }
}

/// What a list is of, where it is written out and all are of one kind.
fn element(list: &Node, names: &mut Names) -> Result<Kind, FormulaError> {
    let What::List(all) = &list.what else { return Ok(Kind::Any) };
    let kinds = all.iter().map(|each| visit(each, names)).collect::<Result<Vec<_>, _>>()?;
    let first = kinds.first().copied().unwrap_or(Kind::Any);
    Ok(if first != Kind::Nil && kinds.iter().all(|kind| *kind == first) { first } else { Kind::Any })
}

fn binary(at: usize, operator: Binary, left: Kind, right: Kind) -> Result<Kind, FormulaError> {
    let refuse = |wanted: &str| {
        let found = format!("{} and {}", left.words(), right.words());
        Err(FormulaError::new(at, format!("{} is for {wanted}, not {found}", operator.word())))
    };
    let numbers = left.may_be_number() && right.may_be_number();
    let is = |kind: Kind, wanted: Kind| kind == wanted || kind == Kind::Any;
    match operator {
        Binary::Coalesce => Ok(left.or(right)),
        Binary::Equal | Binary::Unequal => {
            let known = |kind| !matches!(kind, Kind::Nil | Kind::Any);
            let same = left == right || numbers;
            if known(left) && known(right) && !same { refuse("values of one kind") } else { Ok(Kind::Bool) }
        }
        Binary::And | Binary::Or if is(left, Kind::Bool) && is(right, Kind::Bool) => Ok(Kind::Bool),
        Binary::And | Binary::Or => refuse("true and false"),
        Binary::Modulo if is(left, Kind::Int) && is(right, Kind::Int) => Ok(Kind::Int),
        Binary::Modulo => refuse("whole numbers"),
        _ if !numbers => refuse("numbers"),
        Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => Ok(Kind::Bool),
        Binary::Divide | Binary::Power => Ok(Kind::Float),
        _ if left == Kind::Any || right == Kind::Any => Ok(Kind::Any),
        _ if left == Kind::Float || right == Kind::Float => Ok(Kind::Float),
        _ => Ok(Kind::Int),
    }
}
