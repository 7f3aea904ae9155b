//! Cookies of waiting rooms are sealed like pins, by the same keys and for another purpose.

use usher_core::id::Id;
use usher_rooms::cookie::{Sealer, claims};

use super::{Keys, Purpose, Scope};

impl Sealer for Keys {
    fn seal(&self, of: Id, claims: &[u8]) -> String {
        Keys::seal(self, visit(of), claims)
    }

    fn open(&self, of: Id, text: &[u8], into: &mut [u8; claims::LEN]) -> Option<usize> {
        let opened = Keys::open(self, visit(of), text)?;
        into.get_mut(..opened.len())?.copy_from_slice(&opened);
        Some(opened.len())
    }
}

fn visit(of: Id) -> Scope {
    Scope {
        purpose: Purpose::Visit,
        of,
    }
}
