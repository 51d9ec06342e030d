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
    visit(root, &mut Vec::new())
}

fn visit(node: &Node, variables: &mut Vec<Kind>) -> Result<Kind, FormulaError> {
    let wants = |word: &str, wanted: &str, found: Kind| {
        Err(FormulaError::new(node.at, format!("{word} is for {wanted}, not {}", found.words())))
    };
    Ok(match &node.what {
        What::Nil => Kind::Nil,
        What::Bool(_) => Kind::Bool,
        What::Int(_) => Kind::Int,
        What::Float(_) | What::Trigger(_) => Kind::Float,
        What::Variable(place) => variables[*place],
        What::Element => Kind::Any,
        What::List(all) => {
            for each in all {
                visit(each, variables)?;
            }
            Kind::List
        }
        What::Unary(operator, inner) => match (operator, visit(inner, variables)?) {
            (Unary::Not, Kind::Bool | Kind::Any) => Kind::Bool,
            (Unary::Not, found) => return wants("not", "true and false", found),
            (_, found) if found.may_be_number() => found,
            (_, found) => return wants("a sign", "numbers", found),
        },
        What::Binary(operator, left, right) => {
            let (left, right) = (visit(left, variables)?, visit(right, variables)?);
            return binary(node.at, *operator, left, right);
        }
        What::Choice(condition, yes, no) => {
            let condition = visit(condition, variables)?;
            if !matches!(condition, Kind::Bool | Kind::Any) {
                return wants("?", "true and false", condition);
            }
            visit(yes, variables)?.or(visit(no, variables)?)
        }
        What::Call(function, values) => {
            let kinds = values.iter().map(|each| visit(each, variables)).collect::<Result<Vec<_>, _>>()?;
            match function {
                Function::Max | Function::Min => {
                    if let Some(&bad) = kinds.iter().find(|kind| !(kind.may_be_number() || **kind == Kind::List)) {
                        return wants(function.word(), "numbers", bad);
                    }
                    kinds.into_iter().reduce(Kind::or).map_or(Kind::Any, |kind| match kind {
                        Kind::List => Kind::Any,
                        other => other,
                    })
                }
                Function::Mean | Function::Median => Kind::Float,
                Function::Len => match kinds[0] {
                    Kind::List | Kind::Any => Kind::Int,
                    found => return wants("len", "lists", found),
                },
                _ if !kinds[0].may_be_number() => return wants(function.word(), "numbers", kinds[0]),
                Function::Abs => kinds[0],
                Function::Int => Kind::Int,
                Function::Ceil | Function::Floor | Function::Round | Function::Float => Kind::Float,
            }
        }
        What::Over(fold, list, each) => {
            let list = visit(list, variables)?;
            if !matches!(list, Kind::List | Kind::Any) {
                return wants(fold.word(), "lists", list);
            }
            let each = each.as_ref().map(|each| visit(each, variables)).transpose()?;
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
            let value = visit(value, variables)?;
            variables.push(value);
            let found = visit(body, variables);
            variables.pop();
            found?
        }
    })
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
        Binary::Equal | Binary::Unequal => Ok(Kind::Bool),
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
