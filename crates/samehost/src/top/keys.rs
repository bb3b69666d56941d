//! What the keys do: the page, the order and the position that the screen shows.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::view::ClientOrder;

/// The lists that the lower part of the screen can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenPage {
    /// The servers' clients.
    Clients,
    /// The mounts.
    Mounts,
    /// The exports.
    Exports,
    /// Lanes that should be and aren't.
    Lanes,
    /// The keys.
    Help,
}

impl ScreenPage {
    /// The pages that Tab goes through.
    pub const LISTS: [Self; 4] = [Self::Clients, Self::Mounts, Self::Exports, Self::Lanes];
}

/// What the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Display {
    /// The page.
    pub page: ScreenPage,
    /// The order of the clients.
    pub order: ClientOrder,
    /// Whether that order is reversed.
    pub reversed: bool,
    /// The first row that is shown.
    pub first: usize,
    /// Whether the numbers stand still.
    pub paused: bool,
}

impl Default for Display {
    fn default() -> Self {
        Self {
            page: ScreenPage::Clients,
            order: ClientOrder::Calls,
            reversed: false,
            first: 0,
            paused: false,
        }
    }
}

/// The keys, for the help page.
pub const HELP: [(&str, &str); 9] = [
    ("c m e l", "clients, mounts, exports, missing lanes"),
    ("Tab", "the next of these lists"),
    ("< >", "sort the clients by the column to the left, to the right"),
    ("P N", "sort the clients by calls, by address"),
    ("R", "reverse the order"),
    ("Up Down PgUp PgDn Home", "scroll"),
    ("Space", "stop and continue"),
    ("h ?", "this help"),
    ("q", "quit"),
];

impl Display {
    /// Takes a key. Returns whether to go on.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return !matches!(key.code, KeyCode::Char('c' | 'd'));
        }
        match key.code {
            KeyCode::Char('q' | 'Q') => return false,
            KeyCode::Esc if self.page != ScreenPage::Help => return false,
            KeyCode::Esc => self.show(ScreenPage::Clients),
            KeyCode::Char('c') => self.show(ScreenPage::Clients),
            KeyCode::Char('m') => self.show(ScreenPage::Mounts),
            KeyCode::Char('e') => self.show(ScreenPage::Exports),
            KeyCode::Char('l') => self.show(ScreenPage::Lanes),
            KeyCode::Char('h' | '?') => self.show(ScreenPage::Help),
            KeyCode::Tab => {
                let at = ScreenPage::LISTS.iter().position(|page| *page == self.page);
                self.show(ScreenPage::LISTS[at.map_or(0, |at| (at + 1) % ScreenPage::LISTS.len())]);
            }
            KeyCode::Char('<') => self.sort_by(-1),
            KeyCode::Char('>') => self.sort_by(1),
            KeyCode::Char('P') => self.order = ClientOrder::Calls,
            KeyCode::Char('N') => self.order = ClientOrder::Client,
            KeyCode::Char('R') => self.reversed = !self.reversed,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => self.first = self.first.saturating_add(1),
            KeyCode::PageUp => self.first = self.first.saturating_sub(10),
            KeyCode::PageDown => self.first = self.first.saturating_add(10),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        true
    }

    fn show(&mut self, page: ScreenPage) {
        self.page = page;
        self.first = 0;
    }

    /// Sorts by the column that is `step` columns to the right, without leaving the table.
    fn sort_by(&mut self, step: isize) {
        let all = ClientOrder::ALL;
        let at = all.iter().position(|order| *order == self.order).unwrap_or(0);
        self.order = all[at.saturating_add_signed(step).min(all.len() - 1)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(display: &mut Display, keys: &str) -> bool {
        keys.chars().all(|key| {
            let code = match key {
                '\t' => KeyCode::Tab,
                'v' => KeyCode::Down,
                '^' => KeyCode::Up,
                key => KeyCode::Char(key),
            };
            display.press(KeyEvent::from(code))
        })
    }

    #[test]
    fn pages_come_in_turn_and_begin_at_the_top() {
        let mut display = Display::default();
        assert!(press(&mut display, "vvv^"));
        assert_eq!(display.first, 2);
        let pages: Vec<_> = (0..4)
            .map(|_| {
                press(&mut display, "\t");
                display.page
            })
            .collect();
        assert_eq!(pages, [ScreenPage::Mounts, ScreenPage::Exports, ScreenPage::Lanes, ScreenPage::Clients]);
        assert_eq!(display.first, 0);
        press(&mut display, "?");
        assert_eq!(display.page, ScreenPage::Help);
        assert!(display.press(KeyEvent::from(KeyCode::Esc)), "Esc leaves the help");
        assert_eq!(display.page, ScreenPage::Clients);
    }

    #[test]
    fn columns_have_ends() {
        let mut display = Display::default();
        press(&mut display, "<<<");
        assert_eq!(display.order, ClientOrder::Client);
        press(&mut display, ">>>>>>");
        assert_eq!(display.order, ClientOrder::Grants);
        press(&mut display, "PR");
        assert_eq!((display.order, display.reversed), (ClientOrder::Calls, true));
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        let mut display = Display::default();
        assert!(!press(&mut display, "q"));
        assert!(!display.press(KeyEvent::from(KeyCode::Esc)));
        assert!(!display.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(press(&mut display, " "));
        assert!(display.paused);
    }
}
