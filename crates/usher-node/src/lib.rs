//! A running node: owns the engine and the fronts and drives them; reload, drain.

pub mod settings;
