//! What must not stand in parsed code: unfinished pieces, tests that test nothing, and calls that wait by sleeping.

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprAsync, ExprAwait, ExprMethodCall, File, Macro, Signature, Stmt};

use crate::layers::names;
use crate::source::{Finding, SourceFile};

/// Names of the rules in this file.
pub const RULES: [&str; 7] = [
    "no-async-in-engine",
    "no-unfinished-code",
    "no-ignored-test",
    "no-bare-matches",
    "no-sleep-in-tests",
    "expect-instead-of-allow",
    "no-unbounded-send",
];

/// Calls that put a thread or a task to sleep.
const SLEEPS: [&str; 4] = [
    concat!("std::thread::", "sleep"),
    concat!("tokio::time::", "sleep"),
    concat!("actix_rt::time::", "sleep"),
    concat!("actix::clock::", "sleep"),
];

/// Adds a finding for everything that must not stand in code.
pub fn check(file: &SourceFile, parsed: &File, findings: &mut Vec<Finding>) {
    let mut code = Code {
        file,
        in_engine: file.path.starts_with("engine/"),
        findings,
    };
    code.visit_file(parsed);
    for named in names(file, parsed) {
        if named.in_test && SLEEPS.iter().any(|sleep| named.reaches(sleep)) {
            findings.push(file.finding(
                "no-sleep-in-tests",
                format!(
                    "names {} (wait for the event, or move the simulated clock)",
                    named.path
                ),
            ));
        }
    }
}

struct Code<'a> {
    file: &'a SourceFile,
    in_engine: bool,
    findings: &'a mut Vec<Finding>,
}

impl Code<'_> {
    fn add(&mut self, rule: &'static str, what: impl Into<String>) {
        self.findings.push(self.file.finding(rule, what));
    }

    fn asynchronous(&mut self, what: &str) {
        if self.in_engine {
            self.add(
                "no-async-in-engine",
                format!("{what} (the engine is plain synchronous code)"),
            );
        }
    }
}

impl<'ast> Visit<'ast> for Code<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("ignore") {
            self.add("no-ignored-test", "an ignored test (mend it or remove it)");
        }
        if attribute.path().is_ident("allow") {
            self.add(
                "expect-instead-of-allow",
                "an allow attribute (expect with a reason fails when it goes stale)",
            );
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        for name in ["todo", "unimplemented"] {
            if invocation.path.is_ident(name) {
                self.add("no-unfinished-code", format!("{name}! is left over"));
            }
        }
        visit::visit_macro(self, invocation);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let dropped = match statement {
            Stmt::Macro(call) if call.semi_token.is_some() => Some(&call.mac),
            Stmt::Expr(Expr::Macro(call), Some(_)) => Some(&call.mac),
            _ => None,
        };
        if dropped.is_some_and(|call| call.path.is_ident("matches")) {
            self.add("no-bare-matches", "the answer of matches! is dropped (assert it)");
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        // The benchmark stands beside bare actix, so it uses it as people do.
        if call.method == "do_send" && !self.file.path.starts_with("actors/benches/") {
            self.add("no-unbounded-send", "do_send ignores the mailbox's capacity");
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        if signature.asyncness.is_some() {
            self.asynchronous(&format!("async fn {}", signature.ident));
        }
        visit::visit_signature(self, signature);
    }

    fn visit_expr_async(&mut self, block: &'ast ExprAsync) {
        self.asynchronous("an async block");
        visit::visit_expr_async(self, block);
    }

    fn visit_expr_await(&mut self, waiting: &'ast ExprAwait) {
        self.asynchronous("an await");
        visit::visit_expr_await(self, waiting);
    }
}
