//! An expression as it was written: names and literals with their places, no types yet.

use super::fault::Span;

#[derive(Debug, Clone)]
pub(super) enum Expression {
    /// `true`, `false`
    Constant(bool, Span),
    /// Two or more, joined by the same word.
    Chain(Join, Vec<Expression>),
    Not(Box<Expression>),
    /// A value alone.
    Bare(Value),
    Compare(Value, Comparison),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    And,
    Xor,
    Or,
}

impl Join {
    /// From the loosest to the tightest.
    pub(super) const ALL: [Join; 3] = [Join::Or, Join::Xor, Join::And];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Join::And => "and",
            Join::Xor => "xor",
            Join::Or => "or",
        }
    }

    pub(super) const fn sign(self) -> &'static str {
        match self {
            Join::And => "&&",
            Join::Xor => "^^",
            Join::Or => "||",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Comparison {
    /// The operator.
    pub(super) at: Span,
    pub(super) with: With,
}

#[derive(Debug, Clone)]
pub(super) enum With {
    Order(Order, Literal),
    Contains(Literal),
    Matches { pattern: String, at: Span },
    Wildcard { strict: bool, pattern: Literal },
    In(Vec<Literal>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Order {
    pub(super) const ALL: [Order; 6] = [
        Order::Eq,
        Order::Ne,
        Order::Lt,
        Order::Le,
        Order::Gt,
        Order::Ge,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Order::Eq => "eq",
            Order::Ne => "ne",
            Order::Lt => "lt",
            Order::Le => "le",
            Order::Gt => "gt",
            Order::Ge => "ge",
        }
    }

    pub(super) const fn sign(self) -> &'static str {
        match self {
            Order::Eq => "==",
            Order::Ne => "!=",
            Order::Lt => "<",
            Order::Le => "<=",
            Order::Gt => ">",
            Order::Ge => ">=",
        }
    }

    /// Whether two values that compare as `found` are in this order.
    pub(super) fn holds(self, found: std::cmp::Ordering) -> bool {
        match self {
            Order::Eq => found.is_eq(),
            Order::Ne => found.is_ne(),
            Order::Lt => found.is_lt(),
            Order::Le => found.is_le(),
            Order::Gt => found.is_gt(),
            Order::Ge => found.is_ge(),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Value {
    /// The whole of it.
    pub(super) at: Span,
    pub(super) name: String,
    /// Only the name.
    pub(super) name_at: Span,
    /// `Some` for a call, even without arguments.
    pub(super) arguments: Option<Vec<Argument>>,
    pub(super) indexes: Vec<(Index, Span)>,
}

#[derive(Debug, Clone)]
pub(super) enum Index {
    Key(Vec<u8>),
    Nth(u32),
    Each,
}

#[derive(Debug, Clone)]
pub(super) enum Argument {
    Value(Value),
    Literal(Literal),
    /// Of `any` and `all`.
    Expression(Expression, Span),
}

#[derive(Debug, Clone)]
pub(super) struct Literal {
    pub(super) at: Span,
    pub(super) kind: LiteralKind,
}

#[derive(Debug, Clone)]
pub(super) enum LiteralKind {
    Text(Vec<u8>),
    /// A number, an address, a range, or a mistake: its type depends on its place.
    Word(String),
}
