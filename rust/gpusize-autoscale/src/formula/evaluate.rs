//! What a formula comes to (`vm/vm.go`, `builtin/lib.go` of Expr).

use std::cmp::Ordering;

use super::FormulaError;
use super::parse::{Binary, Fold, Function, Node, Unary, What};
use super::types::Kind;

/// A value on the way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Nil => Kind::Nil,
            Self::Bool(_) => Kind::Bool,
            Self::Int(_) => Kind::Int,
            Self::Float(_) => Kind::Float,
            Self::List(_) => Kind::List,
        }
    }

    fn number(&self) -> Option<f64> {
        match *self {
            Self::Int(value) => Some(value as f64),
            Self::Float(value) => Some(value),
            _ => None,
        }
    }
}

/// What names stand for at some place.
pub(super) struct Scope<'a> {
    triggers: &'a [Option<f64>],
    variables: Vec<Value>,
    elements: Vec<Value>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(triggers: &'a [Option<f64>]) -> Self {
        Self { triggers, variables: Vec::new(), elements: Vec::new() }
    }
}

type Found = Result<Value, FormulaError>;

pub(super) fn evaluate(node: &Node, scope: &mut Scope<'_>) -> Found {
    let wants = |word: &str, wanted: &str, found: &Value| {
        FormulaError::new(node.at, format!("{word} is for {wanted}, not {}", found.kind().words()))
    };
    Ok(match &node.what {
        What::Nil => Value::Nil,
        What::Bool(value) => Value::Bool(*value),
        What::Int(value) => Value::Int(*value),
        What::Float(value) => Value::Float(*value),
        What::Trigger(place) => scope.triggers[*place].map_or(Value::Nil, Value::Float),
        What::Variable(place) => scope.variables[*place].clone(),
        What::Element => scope.elements.last().cloned().unwrap_or(Value::Nil),
        What::List(all) => Value::List(all.iter().map(|each| evaluate(each, scope)).collect::<Result<_, _>>()?),
        What::Unary(operator, inner) => match (operator, evaluate(inner, scope)?) {
            (Unary::Not, Value::Bool(value)) => Value::Bool(!value),
            (Unary::Not, other) => return Err(wants("not", "true and false", &other)),
            (Unary::Minus, Value::Int(value)) => Value::Int(value.wrapping_neg()),
            (Unary::Minus, Value::Float(value)) => Value::Float(-value),
            (Unary::Plus, value @ (Value::Int(_) | Value::Float(_))) => value,
            (_, other) => return Err(wants("a sign", "numbers", &other)),
        },
        What::Binary(Binary::Coalesce, left, right) => match evaluate(left, scope)? {
            Value::Nil => evaluate(right, scope)?,
            value => value,
        },
        What::Binary(operator @ (Binary::And | Binary::Or), left, right) => {
            // The right one is not looked at where the left one decides.
            for side in [left, right] {
                match evaluate(side, scope)? {
                    Value::Bool(value) if value == (*operator == Binary::Or) => return Ok(Value::Bool(value)),
                    Value::Bool(_) => {}
                    other => return Err(wants(operator.word(), "true and false", &other)),
                }
            }
            Value::Bool(*operator == Binary::And)
        }
        What::Binary(operator, left, right) => {
            let (left, right) = (evaluate(left, scope)?, evaluate(right, scope)?);
            binary(node.at, *operator, &left, &right)?
        }
        What::Choice(condition, yes, no) => match evaluate(condition, scope)? {
            Value::Bool(value) => evaluate(if value { yes } else { no }, scope)?,
            other => return Err(wants("?", "true and false", &other)),
        },
        What::Call(function, values) => {
            let values = values.iter().map(|each| evaluate(each, scope)).collect::<Result<Vec<_>, _>>()?;
            call(node.at, *function, &values)?
        }
        What::Over(fold, list, each) => {
            let list = match evaluate(list, scope)? {
                Value::List(list) => list,
                other => return Err(wants(fold.word(), "lists", &other)),
            };
            over(node.at, *fold, list, each.as_deref(), scope)?
        }
        What::Let(value, body) => {
            let value = evaluate(value, scope)?;
            scope.variables.push(value);
            let found = evaluate(body, scope);
            scope.variables.pop();
            found?
        }
    })
}

fn binary(at: usize, operator: Binary, left: &Value, right: &Value) -> Found {
    if matches!(operator, Binary::Equal | Binary::Unequal) {
        let equal = match (left.number(), right.number()) {
            (Some(left), Some(right)) => left.partial_cmp(&right) == Some(Ordering::Equal),
            _ => left == right,
        };
        return Ok(Value::Bool(equal == (operator == Binary::Equal)));
    }
    let bad = [left, right].into_iter().find(|value| value.number().is_none());
    if let Some(bad) = bad {
        return Err(FormulaError::new(at, format!("{} is for numbers, not {}", operator.word(), bad.kind().words())));
    }
    if let (Value::Int(left), Value::Int(right)) = (left, right) {
        let (left, right) = (*left, *right);
        match operator {
            Binary::Add => return Ok(Value::Int(left.wrapping_add(right))),
            Binary::Subtract => return Ok(Value::Int(left.wrapping_sub(right))),
            Binary::Multiply => return Ok(Value::Int(left.wrapping_mul(right))),
            Binary::Modulo => {
                let zero = || FormulaError::new(at, "% by 0");
                return if right == 0 { Err(zero()) } else { Ok(Value::Int(left.wrapping_rem(right))) };
            }
            _ => {}
        }
    }
    let (left, right) = (left.number().unwrap_or(f64::NAN), right.number().unwrap_or(f64::NAN));
    Ok(match operator {
        Binary::Add => Value::Float(left + right),
        Binary::Subtract => Value::Float(left - right),
        Binary::Multiply => Value::Float(left * right),
        Binary::Divide => Value::Float(left / right),
        Binary::Power => Value::Float(left.powf(right)),
        Binary::Less => Value::Bool(left < right),
        Binary::LessOrEqual => Value::Bool(left <= right),
        Binary::Greater => Value::Bool(left > right),
        Binary::GreaterOrEqual => Value::Bool(left >= right),
        _ => return Err(FormulaError::new(at, format!("{} is for whole numbers", operator.word()))),
    })
}

fn call(at: usize, function: Function, values: &[Value]) -> Found {
    let wants = |wanted: &str, found: &Value| {
        FormulaError::new(at, format!("{} is for {wanted}, not {}", function.word(), found.kind().words()))
    };
    let one = &values[0];
    Ok(match function {
        Function::Max | Function::Min => {
            let wanted = if function == Function::Max { Ordering::Less } else { Ordering::Greater };
            let all = flat(values).map_err(|bad| wants("numbers", &bad))?;
            let further = |best: Value, next: Value| {
                let order = best.number().partial_cmp(&next.number());
                if order == Some(wanted) { next } else { best }
            };
            all.into_iter().reduce(further).ok_or_else(|| wants("numbers", &Value::Nil))?
        }
        Function::Mean | Function::Median => {
            let all = flat(values).map_err(|bad| wants("numbers", &bad))?;
            let mut all: Vec<f64> = all.iter().filter_map(Value::number).collect();
            Value::Float(if all.is_empty() {
                0.0
            } else if function == Function::Mean {
                all.iter().sum::<f64>() / all.len() as f64
            } else {
                // Not by their bits: -0 is 0.
                all.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Less));
                let half = all.len() / 2;
                if all.len() % 2 == 1 { all[half] } else { f64::midpoint(all[half - 1], all[half]) }
            })
        }
        Function::Len => match one {
            Value::List(all) => Value::Int(all.len() as i64),
            other => return Err(wants("lists", other)),
        },
        Function::Abs => match one {
            Value::Int(value) => Value::Int(value.wrapping_abs()),
            Value::Float(value) => Value::Float(value.abs()),
            other => return Err(wants("numbers", other)),
        },
        Function::Int => match one {
            Value::Int(value) => Value::Int(*value),
            Value::Float(value) => Value::Int(go_int(*value)),
            other => return Err(wants("numbers", other)),
        },
        Function::Ceil | Function::Floor | Function::Round | Function::Float => {
            let value = one.number().ok_or_else(|| wants("numbers", one))?;
            Value::Float(match function {
                Function::Ceil => value.ceil(),
                Function::Floor => value.floor(),
                Function::Round => value.round(),
                _ => value,
            })
        }
    })
}

/// Numbers, those of lists too; or the first value that is neither.
fn flat(values: &[Value]) -> Result<Vec<Value>, Value> {
    let mut all = Vec::new();
    for value in values {
        match value {
            Value::Int(_) | Value::Float(_) => all.push(value.clone()),
            Value::List(inner) => all.extend(flat(inner)?),
            other => return Err(other.clone()),
        }
    }
    Ok(all)
}

fn over(at: usize, fold: Fold, list: Vec<Value>, each: Option<&Node>, scope: &mut Scope<'_>) -> Found {
    let mut sum = Value::Int(0);
    let (mut count, all) = (0, list.len());
    let mut kept = Vec::new();
    for element in list {
        scope.elements.push(element.clone());
        let found = each.map_or_else(|| Ok(element.clone()), |each| evaluate(each, scope));
        scope.elements.pop();
        match (fold, found?) {
            (Fold::Sum, value) => sum = binary(at, Binary::Add, &value, &sum)?,
            (Fold::Map, value) => kept.push(value),
            (Fold::Filter, Value::Bool(true)) => kept.push(element),
            (_, Value::Bool(value)) => {
                count += usize::from(value);
                // As soon as it is decided, the others are not looked at.
                if (fold == Fold::All && !value) || (matches!(fold, Fold::Any | Fold::None) && value) {
                    return Ok(Value::Bool(fold == Fold::Any));
                }
            }
            (_, other) => {
                let problem = format!("{} is for conditions, not {}", fold.word(), other.kind().words());
                return Err(FormulaError::new(at, problem));
            }
        }
    }
    Ok(match fold {
        Fold::Sum => sum,
        Fold::Count => Value::Int(count as i64),
        Fold::All => Value::Bool(count == all),
        Fold::Any => Value::Bool(count > 0),
        Fold::None => Value::Bool(count == 0),
        Fold::One => Value::Bool(count == 1),
        Fold::Filter | Fold::Map => Value::List(kept),
    })
}

/// A whole number as Go makes one of a float on amd64: what does not fit is the least there is.
pub(crate) fn go_int(value: f64) -> i64 {
    let fits = value >= i64::MIN as f64 && value < -(i64::MIN as f64);
    if fits { value as i64 } else { i64::MIN }
}

impl Binary {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::Power => "**",
            Self::Equal => "==",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::And => "&&",
            Self::Or => "||",
            Self::Coalesce => "??",
        }
    }
}

impl Function {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Min => "min",
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Abs => "abs",
            Self::Ceil => "ceil",
            Self::Floor => "floor",
            Self::Round => "round",
            Self::Int => "int",
            Self::Float => "float",
            Self::Len => "len",
        }
    }
}

impl Fold {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Count => "count",
            Self::All => "all",
            Self::Any => "any",
            Self::One => "one",
            Self::None => "none",
            Self::Filter => "filter",
            Self::Map => "map",
        }
    }
}
