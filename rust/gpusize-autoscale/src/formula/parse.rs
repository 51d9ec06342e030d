//! From text to a tree, with the precedences of Expr (`parser/parser.go`, `parser/operator/operator.go`).

use super::FormulaError;

/// A part of a formula, and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: usize,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// The value of a trigger, by its place.
    Trigger(usize),
    /// What a `let` around it has named; its place from the outermost.
    Variable(usize),
    /// `#`: what a list's function looks at.
    Element,
    List(Vec<Node>),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
    /// A function over a list, with what is done with each element.
    Over(Fold, Box<Node>, Option<Box<Node>>),
    Let(Box<Node>, Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Minus,
    Plus,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Coalesce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Max,
    Min,
    Mean,
    Median,
    Abs,
    Ceil,
    Floor,
    Round,
    Int,
    Float,
    Len,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    Count,
    All,
    Any,
    One,
    None,
    Filter,
    Map,
}

enum Named {
    /// With so many values at least and at most.
    Plain(Function, usize, usize),
    Over(Fold),
}

/// The functions that there are.
pub(super) const FUNCTIONS: [&str; 19] = [
    "max", "min", "mean", "median", "abs", "ceil", "floor", "round", "int", "float", "len", "sum", "count", "all",
    "any", "one", "none", "filter", "map",
];

fn named(name: &str) -> Option<Named> {
    use Named::{Over, Plain};
    Some(match name {
        "max" => Plain(Function::Max, 1, usize::MAX),
        "min" => Plain(Function::Min, 1, usize::MAX),
        "mean" => Plain(Function::Mean, 1, usize::MAX),
        "median" => Plain(Function::Median, 1, usize::MAX),
        "abs" => Plain(Function::Abs, 1, 1),
        "ceil" => Plain(Function::Ceil, 1, 1),
        "floor" => Plain(Function::Floor, 1, 1),
        "round" => Plain(Function::Round, 1, 1),
        "int" => Plain(Function::Int, 1, 1),
        "float" => Plain(Function::Float, 1, 1),
        "len" => Plain(Function::Len, 1, 1),
        "sum" => Over(Fold::Sum),
        "count" => Over(Fold::Count),
        "all" => Over(Fold::All),
        "any" => Over(Fold::Any),
        "one" => Over(Fold::One),
        "none" => Over(Fold::None),
        "filter" => Over(Fold::Filter),
        "map" => Over(Fold::Map),
        _ => return None,
    })
}

impl Fold {
    fn goes_without(self) -> bool {
        matches!(self, Self::Sum | Self::Count)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Int(i64),
    Float(f64),
    Sign(&'static str),
    End,
}

/// Longer ones first, so that the first that fits is the one.
const SIGNS: [&str; 29] = [
    "**", "??", "&&", "||", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "^", "<", ">", "!", "?", ":", "(", ")",
    "[", "]", "{", "}", ",", "#", ";", "=",
];

/// One of each operator's words, its precedence, and whether it goes from right to left.
fn binary(token: &Token) -> Option<(Binary, &str, u16, bool)> {
    let word = match token {
        Token::Sign(sign) => sign,
        Token::Name(name) if name == "and" || name == "or" => name.as_str(),
        _ => return None,
    };
    let (operator, precedence) = match word {
        "or" | "||" => (Binary::Or, 10),
        "and" | "&&" => (Binary::And, 15),
        "==" => (Binary::Equal, 20),
        "!=" => (Binary::Unequal, 20),
        "<" => (Binary::Less, 20),
        ">" => (Binary::Greater, 20),
        "<=" => (Binary::LessOrEqual, 20),
        ">=" => (Binary::GreaterOrEqual, 20),
        "+" => (Binary::Add, 30),
        "-" => (Binary::Subtract, 30),
        "*" => (Binary::Multiply, 60),
        "/" => (Binary::Divide, 60),
        "%" => (Binary::Modulo, 60),
        "**" | "^" => (Binary::Power, 100),
        "??" => (Binary::Coalesce, 500),
        _ => return None,
    };
    Some((operator, word, precedence, precedence == 100))
}

fn is_comparison(operator: Binary) -> bool {
    matches!(operator, Binary::Less | Binary::Greater | Binary::LessOrEqual | Binary::GreaterOrEqual)
}

/// Read a formula.
pub(super) fn parse(text: &str, names: &[String]) -> Result<Node, FormulaError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens, place: 0, names, variables: Vec::new(), elements: 0, depth: 0 };
    let root = parser.expression(0)?;
    match parser.token() {
        Token::End => Ok(root),
        _ => Err(parser.unexpected()),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FormulaError> {
    let mut found = Vec::new();
    let mut rest = text;
    let at = |rest: &str| text[..text.len() - rest.len()].chars().count() + 1;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let here = at(rest);
        let Some(first) = rest.chars().next() else {
            found.push((here, Token::End));
            return Ok(found);
        };
        let length = if first.is_ascii_alphabetic() || first == '_' || first == '$' {
            let name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
            let length = rest.find(|c| !name(c)).unwrap_or(rest.len());
            found.push((here, Token::Name(rest[..length].to_owned())));
            length
        } else if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            let length = number_length(rest);
            found.push((here, number(&rest[..length], here)?));
            length
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            found.push((here, Token::Sign(sign)));
            sign.len()
        } else {
            return Err(FormulaError::new(here, format!("unexpected \"{first}\"")));
        };
        rest = &rest[length..];
    }
}

/// As far as a number may go: an exponent's sign belongs to it.
fn number_length(text: &str) -> usize {
    let hex = text.starts_with("0x") || text.starts_with("0X");
    let mut before = ' ';
    for (place, c) in text.char_indices() {
        let signed = !hex && matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
        if !(c.is_ascii_alphanumeric() || c == '_' || c == '.' || signed) {
            return place;
        }
        before = c;
    }
    text.len()
}

fn number(text: &str, at: usize) -> Result<Token, FormulaError> {
    let plain = text.replace('_', "").to_ascii_lowercase();
    let bad = || FormulaError::new(at, format!("\"{text}\" is no number"));
    let whole = |digits: &str, radix| match i64::from_str_radix(digits, radix) {
        Ok(value) => Ok(Token::Int(value)),
        Err(error) if matches!(error.kind(), std::num::IntErrorKind::PosOverflow) => {
            Err(FormulaError::new(at, format!("{text} is too large")))
        }
        Err(_) => Err(bad()),
    };
    if let Some(digits) = plain.strip_prefix("0x") {
        whole(digits, 16)
    } else if plain.contains(['.', 'e']) {
        let value: f64 = plain.parse().map_err(|_| bad())?;
        if value.is_finite() {
            Ok(Token::Float(value))
        } else {
            Err(FormulaError::new(at, format!("{text} is too large")))
        }
    } else if let Some(digits) = plain.strip_prefix("0b") {
        whole(digits, 2)
    } else if let Some(digits) = plain.strip_prefix("0o") {
        whole(digits, 8)
    } else {
        whole(&plain, 10)
    }
}

/// So deep may brackets and operators stand in each other.
const DEEPEST: usize = 100;

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    place: usize,
    names: &'a [String],
    variables: Vec<String>,
    /// Functions over lists around this place.
    elements: usize,
    depth: usize,
}

impl Parser<'_> {
    fn token(&self) -> &Token {
        &self.tokens[self.place].1
    }

    fn at(&self) -> usize {
        self.tokens[self.place].0
    }

    fn next(&mut self) {
        self.place = (self.place + 1).min(self.tokens.len() - 1);
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.token(), Token::Sign(found) if *found == sign)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), FormulaError> {
        if self.takes(sign) {
            return Ok(());
        }
        let problem = match self.token() {
            Token::End => format!("the formula ends where \"{sign}\" was expected"),
            found => format!("unexpected {}, \"{sign}\" was expected", found.shown()),
        };
        Err(FormulaError::new(self.at(), problem))
    }

    fn unexpected(&self) -> FormulaError {
        let problem = match self.token() {
            Token::End => "the formula ends where a value was expected".to_owned(),
            found => format!("unexpected {}", found.shown()),
        };
        FormulaError::new(self.at(), problem)
    }

    fn expression(&mut self, least: u16) -> Result<Node, FormulaError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(FormulaError::new(self.at(), format!("it is nested more than {DEEPEST} deep")));
        }
        let found = self.operators(least);
        self.depth -= 1;
        found
    }

    fn operators(&mut self, least: u16) -> Result<Node, FormulaError> {
        if least == 0 && matches!(self.token(), Token::Name(name) if name == "let") {
            return self.variable();
        }
        let mut left = self.primary()?;
        let mut after_coalesce = false;
        while let Some((operator, word, precedence, rightwards)) = binary(self.token()) {
            if precedence < least {
                break;
            }
            let (at, word) = (self.at(), word.to_owned());
            if after_coalesce && operator != Binary::Coalesce {
                return Err(FormulaError::new(at, format!("{word} beside ?? needs parentheses")));
            }
            self.next();
            if is_comparison(operator) {
                left = self.comparisons(left, (at, operator), precedence)?;
            } else {
                let right = self.expression(if rightwards { precedence } else { precedence + 1 })?;
                left = Node { at, what: What::Binary(operator, Box::new(left), Box::new(right)) };
            }
            after_coalesce = operator == Binary::Coalesce;
        }
        if least == 0 {
            while self.is("?") {
                left = self.choice(left)?;
            }
        }
        Ok(left)
    }

    /// `a < b < c` is `a < b && b < c`.
    fn comparisons(
        &mut self,
        mut left: Node,
        (mut at, mut operator): (usize, Binary),
        precedence: u16,
    ) -> Result<Node, FormulaError> {
        let mut all: Option<Node> = None;
        loop {
            let right = self.expression(precedence + 1)?;
            let one = Node { at, what: What::Binary(operator, Box::new(left), Box::new(right.clone())) };
            all = Some(match all {
                None => one,
                Some(before) => Node { at, what: What::Binary(Binary::And, Box::new(before), Box::new(one)) },
            });
            match binary(self.token()) {
                Some((next, ..)) if is_comparison(next) => (at, operator) = (self.at(), next),
                _ => return all.ok_or_else(|| self.unexpected()),
            }
            self.next();
            left = right;
        }
    }

    fn choice(&mut self, condition: Node) -> Result<Node, FormulaError> {
        let at = self.at();
        self.next();
        let yes = if self.is(":") { condition.clone() } else { self.expression(0)? };
        self.expect(":")?;
        let no = self.expression(0)?;
        Ok(Node { at, what: What::Choice(Box::new(condition), Box::new(yes), Box::new(no)) })
    }

    fn variable(&mut self) -> Result<Node, FormulaError> {
        let at = self.at();
        self.next();
        let Token::Name(name) = self.token().clone() else { return Err(self.unexpected()) };
        if self.names.contains(&name) || self.variables.contains(&name) || named(&name).is_some() {
            return Err(FormulaError::new(self.at(), format!("{name} is taken already")));
        }
        self.next();
        self.expect("=")?;
        let value = self.expression(0)?;
        self.expect(";")?;
        self.variables.push(name);
        let body = self.expression(0);
        self.variables.pop();
        Ok(Node { at, what: What::Let(Box::new(value), Box::new(body?)) })
    }

    fn primary(&mut self) -> Result<Node, FormulaError> {
        let at = self.at();
        let unary = match self.token() {
            Token::Sign("-") => Some((Unary::Minus, 90)),
            Token::Sign("+") => Some((Unary::Plus, 90)),
            Token::Sign("!") => Some((Unary::Not, 50)),
            Token::Name(name) if name == "not" => Some((Unary::Not, 50)),
            _ => None,
        };
        if let Some((operator, precedence)) = unary {
            self.next();
            let inner = self.expression(precedence)?;
            return Ok(Node { at, what: What::Unary(operator, Box::new(inner)) });
        }
        let what = match self.token().clone() {
            Token::Int(value) => What::Int(value),
            Token::Float(value) => What::Float(value),
            Token::Name(name) => return self.name(&name),
            Token::Sign("#") if self.elements > 0 => What::Element,
            Token::Sign("(") => {
                self.next();
                let inner = self.expression(0)?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => {
                self.next();
                return Ok(Node { at, what: What::List(self.values("]")?) });
            }
            _ => return Err(self.unexpected()),
        };
        self.next();
        Ok(Node { at, what })
    }

    fn name(&mut self, name: &str) -> Result<Node, FormulaError> {
        let at = self.at();
        self.next();
        if self.is("(") {
            return self.call(name, at);
        }
        let what = match name {
            "true" => What::Bool(true),
            "false" => What::Bool(false),
            "nil" => What::Nil,
            _ => {
                let variable = self.variables.iter().position(|known| known == name).map(What::Variable);
                let trigger = || self.names.iter().position(|known| known == name).map(What::Trigger);
                let unknown = || FormulaError::new(at, format!("there is no trigger \"{name}\""));
                variable.or_else(trigger).ok_or_else(unknown)?
            }
        };
        Ok(Node { at, what })
    }

    fn call(&mut self, name: &str, at: usize) -> Result<Node, FormulaError> {
        let Some(function) = named(name) else {
            let problem = format!("the function {name} is not known; there are {}", FUNCTIONS.join(", "));
            return Err(FormulaError::new(at, problem));
        };
        self.expect("(")?;
        let what = match function {
            Named::Plain(function, least, most) => {
                let values = self.values(")")?;
                if values.len() < least {
                    return Err(FormulaError::new(at, format!("{name} needs at least {least} value")));
                }
                if values.len() > most {
                    return Err(FormulaError::new(at, format!("{name} takes {most} value, not {}", values.len())));
                }
                What::Call(function, values)
            }
            Named::Over(fold) => {
                let list = self.expression(0)?;
                let each = if self.takes(",") && !self.is(")") { Some(self.each()?) } else { None };
                self.takes(",");
                self.expect(")")?;
                if each.is_none() && !fold.goes_without() {
                    return Err(FormulaError::new(at, format!("{name} needs a condition, as in {name}(list, # > 1)")));
                }
                What::Over(fold, Box::new(list), each.map(Box::new))
            }
        };
        Ok(Node { at, what })
    }

    /// What is done with each element: with braces or without.
    fn each(&mut self) -> Result<Node, FormulaError> {
        self.elements += 1;
        let braces = self.takes("{");
        let found = self.expression(0);
        self.elements -= 1;
        if braces {
            self.expect("}")?;
        }
        found
    }

    fn values(&mut self, end: &str) -> Result<Vec<Node>, FormulaError> {
        let mut values = Vec::new();
        while !self.is(end) {
            values.push(self.expression(0)?);
            if !self.takes(",") {
                break;
            }
        }
        self.expect(end)?;
        Ok(values)
    }
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Self::Name(name) => format!("\"{name}\""),
            Self::Int(value) => format!("\"{value}\""),
            Self::Float(value) => format!("\"{value}\""),
            Self::Sign(sign) => format!("\"{sign}\""),
            Self::End => "end".to_owned(),
        }
    }
}
