// Each trouble by the facts that cause it, none without them; and that it leads to a section of the runbook.
#include "router/dashboard/troubles.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "router/dashboard/page_files.h"

namespace tandem::router {
namespace {

ClusterView TwoOfEach() {
  ClusterView view;
  view.prefills.resize(2);
  view.decodes.resize(2);
  for (int i = 0; i < 2; ++i) {
    view.prefills[i].address = absl::StrCat("p", i, ":1");
    view.prefills[i].bootstrap_address = absl::StrCat("p", i, ":2");
    view.prefills[i].is_up = true;
    view.decodes[i].address = absl::StrCat("d", i, ":1");
    view.decodes[i].instance = absl::StrCat("decode-", i);
    view.decodes[i].is_up = true;
    view.decodes[i].load = {.kv_pages_free = 50, .kv_pages_total = 100};
  }
  for (DecodeView& decode : view.decodes) {
    for (const PrefillView& prefill : view.prefills) {
      decode.peers[prefill.bootstrap_address] = {.is_usable = true, .lane = "tcp"};
    }
  }
  return view;
}

class TroublesTest : public ::testing::Test {
 protected:
  TroublesTest() {
    facts_.view = &view_;
    facts_.in_line_max = 100;
    facts_.silences = {absl::Milliseconds(200), absl::Milliseconds(150)};
    facts_.num_recent = 256;
  }
  std::vector<Trouble> All() const { return TroublesOf(facts_); }
  Trouble Only() const {
    const std::vector<Trouble> all = All();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Trouble{} : all[0];
  }

  ClusterView view_ = TwoOfEach();
  TroubleFacts facts_;
};

TEST_F(TroublesTest, NoneWhereAllIsWell) { EXPECT_TRUE(All().empty()); }

TEST_F(TroublesTest, AWorkerThatIsDownIsNamedWithItsReason) {
  view_.decodes[1].is_up = false;
  view_.decodes[1].detail = "Connection refused";
  EXPECT_EQ(Only().what, "1 of 2 decode workers is down: decode-1 at d1:1 (Connection refused)");
  EXPECT_EQ(Only().severity, Severity::kWarning);
}

TEST_F(TroublesTest, ManyWorkersAreOneTrouble) {
  view_.prefills.resize(500, view_.prefills[0]);
  for (PrefillView& prefill : view_.prefills) {
    prefill.is_up = false;
    prefill.detail = std::string(5000, 'x');
  }
  const Trouble trouble = Only();
  EXPECT_TRUE(absl::StrContains(trouble.what, "500 of 500 prefill workers are down: ")) << trouble.what;
  EXPECT_TRUE(absl::EndsWith(trouble.what, "; and 496 more")) << trouble.what;
  EXPECT_LT(trouble.what.size(), 2500u);
}

TEST_F(TroublesTest, WorkersThatFailLeaveOrAreFull) {
  view_.prefills[0].is_ejected = true;
  EXPECT_EQ(Only().what, "1 of 2 prefill workers is ejected for failing whatever it is given: p0:1");
  view_ = TwoOfEach();
  view_.decodes[0].is_draining = true;
  view_.decodes[0].requests_in_flight = 3;
  EXPECT_EQ(Only().what, "1 of 2 decode workers is leaving: nothing new goes there: decode-0 at d0:1, 3 requests left");
  EXPECT_EQ(Only().severity, Severity::kNote);
  view_ = TwoOfEach();
  view_.decodes[0].load.kv_pages_free = 5;
  EXPECT_TRUE(All().empty()) << "95 % are in use, the alert says more";
  view_.decodes[0].load.kv_pages_free = 4;
  EXPECT_EQ(Only().what, "1 of 2 decode workers is almost out of KV pages: decode-0 at d0:1");
  view_ = TwoOfEach();
  view_.prefills[1].load.waiting_requests = 32;
  EXPECT_TRUE(All().empty());
  view_.prefills[1].load.waiting_requests = 33;
  EXPECT_EQ(Only().what, "1 of 2 prefill workers is behind: prompts wait: p1:1, 33 prompts");
}

TEST_F(TroublesTest, PairsOfWorkersThatAreUp) {
  view_.decodes[0].peers["p1:2"] = {.is_usable = false, .detail = "kv_cache_dtype differs"};
  view_.decodes[1].peers.erase("p1:2");
  EXPECT_EQ(Only().what,
            "2 of 4 pairs of workers that are up are not usable: p1:1 with decode-0 at d0:1 (kv_cache_dtype differs); "
            "p1:1 with decode-1 at d1:1 (not reported yet)");
  view_.prefills[1].is_up = false;
  EXPECT_TRUE(absl::StrContains(Only().what, "is down")) << "its pairs are no trouble of their own";
}

TEST_F(TroublesTest, WhatClientsNoticeStandsFirst) {
  view_.decodes[0].is_draining = true;
  view_.decodes[1].is_up = false;
  facts_.ready = absl::UnavailableError("no usable pair");
  const std::vector<Trouble> all = All();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].what, "this router cannot serve, every request gets 503: no usable pair");
  EXPECT_TRUE(all[0].severity == Severity::kPage && all[1].severity == Severity::kWarning);
  EXPECT_EQ(all[2].severity, Severity::kNote);
}

TEST_F(TroublesTest, ARouterThatDrainsIsMeantNotToBeReady) {
  facts_.ready = absl::UnavailableError("draining");
  facts_.is_draining = true;
  EXPECT_EQ(Only().severity, Severity::kNote);
}

TEST_F(TroublesTest, RequestsThatFailedOrWait) {
  facts_.failed = {{503, "chatcmpl-2", "worker lost"}, {500, "chatcmpl-1", "other"}};
  EXPECT_EQ(
      Only().what,
      "2 of the 256 requests that ended last failed within five minutes; the latest, chatcmpl-2, with 503: worker "
      "lost");
  EXPECT_EQ(Only().severity, Severity::kWarning) << "under one in a hundred";
  facts_.num_recent = 199;
  EXPECT_EQ(Only().severity, Severity::kPage);
  facts_.failed.clear();
  facts_.num_without_worker = 1;
  EXPECT_EQ(Only().what, "1 request waits for workers: theirs have failed");
  facts_.num_without_worker = 0;
  facts_.num_in_line = 89;
  EXPECT_TRUE(All().empty());
  facts_.num_in_line = 90;
  EXPECT_TRUE(absl::StrContains(Only().what, "90 of 100 requests wait")) << Only().what;
}

TEST_F(TroublesTest, ShardsSourcesAndReleases) {
  facts_.silences[1] = absl::Seconds(7);
  EXPECT_EQ(Only().what, "1 of 2 shards of this router is silent: shard 1 for 7s");
  facts_.silences.clear();
  facts_.num_sources_failing = 2;
  EXPECT_TRUE(absl::StrContains(Only().what, "2 sources of workers cannot be read"));
  facts_.num_sources_failing = 0;
  facts_.num_unconfirmed_releases = 1;
  EXPECT_TRUE(absl::StrContains(Only().what, "did not confirm"));
  facts_.num_unconfirmed_releases = 0;
  facts_.num_breaches = 2;
  EXPECT_TRUE(absl::StrContains(Only().what, "contradicted itself, 2 times"));
  EXPECT_EQ(Only().severity, Severity::kPage);
}

TEST_F(TroublesTest, TextIsCutBetweenCharacters) {
  EXPECT_EQ(CutText("abc", 3), "abc");
  EXPECT_EQ(CutText("abcd", 3), "abc...");
  EXPECT_EQ(CutText("ab\u00e9d", 3), "ab...") << "two bytes of one character";
}

// As the page finds a section: "### Heading" -> heading, by the rule of the renderers of docs/.
std::set<std::string> Anchors(absl::string_view markdown) {
  std::set<std::string> anchors;
  for (absl::string_view line : absl::StrSplit(markdown, '\n')) {
    if (!absl::ConsumePrefix(&line, "### ")) continue;
    std::string anchor;
    for (const char c : absl::AsciiStrToLower(line)) {
      if (absl::ascii_isalnum(c) || c == '_' || c == '-') anchor += c;
      if (c == ' ') anchor += '-';
    }
    anchors.insert(anchor);
  }
  return anchors;
}

TEST_F(TroublesTest, EachLeadsToASectionOfTheRunbook) {
  const PageFile* runbook = FindPageFile("/dashboard/operations.md");
  ASSERT_NE(runbook, nullptr);
  const std::set<std::string> anchors = Anchors(runbook->body);
  EXPECT_GT(anchors.size(), 10u);
  view_.prefills[0].is_ejected = true;
  view_.prefills[1].is_up = false;
  view_.prefills.push_back(view_.prefills[0]);
  view_.prefills[2].load.waiting_requests = 1000;
  view_.decodes[0].is_draining = true;
  view_.decodes[1].load.kv_pages_free = 0;
  view_.decodes[1].peers.clear();
  facts_.ready = absl::UnavailableError("x");
  facts_.num_in_line = 100;
  facts_.num_without_worker = 1;
  facts_.num_sources_failing = 1;
  facts_.num_unconfirmed_releases = 1;
  facts_.num_breaches = 1;
  facts_.silences[0] = absl::Seconds(6);
  facts_.failed = {{500, "a", "b"}};
  const std::vector<Trouble> all = All();
  EXPECT_EQ(all.size(), 14u);
  for (const Trouble& trouble : all) {
    EXPECT_TRUE(anchors.contains(trouble.runbook)) << trouble.runbook;
    EXPECT_TRUE(absl::StrContains(runbook->body, absl::StrCat("`", trouble.metric, "` | "))) << trouble.metric;
  }
}

}  // namespace
}  // namespace tandem::router
