//! Rust sources as tokens, so that checks don't see comments and strings.

use super::files;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::sync::OnceLock;

/// A token. The opening and the closing delimiter are two tokens.
pub struct Token {
    /// Its text.
    pub text: String,
    /// From 1.
    pub line: usize,
}

/// One Rust file.
pub struct Source {
    /// Its path in the repository.
    pub path: String,
    /// Its contents.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<Token>,
}

impl Source {
    /// Parses a file.
    pub fn lex(path: &str, text: &str) -> Self {
        let stream: TokenStream = text.parse().unwrap_or_else(|e| panic!("{path}: no Rust: {e}"));
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        Self { path: path.to_owned(), text: text.to_owned(), tokens }
    }
}

/// Every Rust file of the repository.
pub fn all() -> &'static [Source] {
    static ALL: OnceLock<Vec<Source>> = OnceLock::new();
    ALL.get_or_init(|| {
        let rust = files::all().into_iter().filter(|file| file.path.ends_with(".rs"));
        rust.map(|file| Source::lex(&file.path, &String::from_utf8_lossy(&file.bytes))).collect()
    })
}

fn flatten(stream: TokenStream, to: &mut Vec<Token>) {
    for tree in stream {
        let mut put = |text: &str, span: proc_macro2::Span| {
            to.push(Token { text: text.to_owned(), line: span.start().line });
        };
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                put(open, group.span_open());
                flatten(group.stream(), to);
                to.push(Token { text: close.to_owned(), line: group.span_close().start().line });
            }
            TokenTree::Ident(ident) => put(&ident.to_string(), ident.span()),
            TokenTree::Punct(punct) => put(&punct.as_char().to_string(), punct.span()),
            TokenTree::Literal(literal) => put(&literal.to_string(), literal.span()),
        }
    }
}
