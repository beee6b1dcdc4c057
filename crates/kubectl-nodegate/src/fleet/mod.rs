//! Shows the status of every agent in one table: the command without a name.

mod look;
mod row;
mod show;
mod table;

pub(crate) use look::look;
pub(crate) use row::Row;
pub(crate) use show::run;
